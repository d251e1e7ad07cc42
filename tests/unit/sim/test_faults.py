import pytest

from combee_sim.chance import draw
from combee_sim.server.faults import FAULTS, TimesSeen, fault_rates, parse_faults
from combee_sim.server.latency import Latency, parse_latency
from support.rows import each_row


def test_faults_hit_their_share_of_calls() -> None:
    rates = parse_faults(["429=0.2", "hang=0.1"])
    hits = [rates.hit(1, f"prompt {n}", 0) for n in range(4_000)]
    assert hits.count("429") / len(hits) == pytest.approx(0.2, abs=0.03)
    assert hits.count("hang") / len(hits) == pytest.approx(0.1, abs=0.03)
    assert set(hits) == {"429", "hang", None}


def test_the_same_call_has_the_same_fate_and_a_retry_may_have_another() -> None:
    rates = parse_faults(["500=0.5"])
    fates = [rates.hit(1, "prompt", seen) for seen in range(50)]
    assert fates == [rates.hit(1, "prompt", seen) for seen in range(50)]
    assert set(fates) == {"500", None}


@each_row("kind", FAULTS)
def test_every_kind_can_be_made_certain(kind: str) -> None:
    assert parse_faults([f"{kind}=1"]).hit(0, "prompt", 0) == kind


def test_5xx_and_10mb_are_understood() -> None:
    assert fault_rates({"5xx": 0.25, "10MB": 0.5}).rates == {"500": 0.25, "huge": 0.5}


@each_row("texts", [["429"], ["429=x"], ["429=2"], ["fire=0.1"], ["429=0.6", "500=0.6"]])
def test_a_fault_that_cannot_be_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"fault"):
        parse_faults(texts)


def test_prompts_are_counted_separately() -> None:
    seen = TimesSeen()
    assert [seen.count(prompt) for prompt in ("a", "a", "b", "a")] == [0, 1, 0, 2]


def test_latency_is_fixed_or_log_normal_around_its_median() -> None:
    assert parse_latency("1.5") == Latency(median_s=1.5)
    assert parse_latency("1.5").seconds(0.9) == 1.5
    varied = parse_latency("lognormal:0.8,0.5")
    drawn = sorted(varied.seconds(draw("x", n)) for n in range(1_001))
    assert drawn[500] == pytest.approx(0.8, rel=0.1)
    assert drawn[0] < 0.3
    assert drawn[-1] > 2.0


def test_latency_may_have_a_tail_that_falls_as_a_power() -> None:
    varied = parse_latency("pareto:0.8,1.6")
    drawn = sorted(varied.seconds(draw("x", n)) for n in range(1_001))
    assert drawn[500] == pytest.approx(0.8, rel=0.1)
    assert drawn[0] > 0.8 / 2
    assert drawn[-1] > 10.0


@each_row("text", ["", "fast", "-1", "pareto:1", "lognormal:1", "lognormal:1,x", "nan", "lognormal:1,99"])
def test_a_latency_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="latency"):
        parse_latency(text)
