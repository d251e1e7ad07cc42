"""GEPA with Combee: 9 records a proposal, three concurrent calls, then one that combines them. The model is a toy."""

import re

from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything

from combee.integrations.gepa import CombeeReflectionLM


def model(prompt: str) -> str:  # or a name, such as "openai/gpt-5", with gepa[full]
    levels = [int(level) for level in re.findall(r"LEVEL=(\d+)", prompt)]
    return f"```\nLEVEL={max(levels) + 1}\n```"


def score(candidate: str, example: int) -> tuple[float, dict[str, str]]:
    level = int(candidate.removeprefix("LEVEL="))
    return float(level >= example), {"Feedback": f"level {level} is not enough for {example}"}


strategy = CombeeReflectionLM(model)
result = optimize_anything(
    seed_candidate="LEVEL=0",
    evaluator=score,
    dataset=list(range(10)),
    config=GEPAConfig(
        engine=EngineConfig(max_metric_calls=150, parallel=False, cache_evaluation=False),
        reflection=ReflectionConfig(reflection_strategy=strategy, reflection_minibatch_size=9),
    ),
)
print(result.best_candidate, "after", strategy.total_tokens_in, "tokens read")
