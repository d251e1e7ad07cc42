"""Combee as GEPA's reflection strategy: the level-1 calls of one proposal run concurrently, in this process.

    gepa.optimize(..., reflection_strategy=CombeeReflectionLM("openai/gpt-5"), reflection_minibatch_size=40)

It takes the options and writes the metadata of GEPA's own ``ComBEEReflectionLM``, with GEPA's prompts. Combee's
core decides on the groups, on usable replies and on the result of a failed combination.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob, ReflectionProposal

from combee.core.batching import shuffle
from combee.integrations.gepa.calls import Attempt, Call, Caller, knows_cost, language_model
from combee.integrations.gepa.plan import AGGREGATION_TEMPLATE, Plan, Templates, check, prompt_of

MAX_WORKERS = 32
"""Maximum number of concurrent calls, the number of groups of a thousand records."""


class CombeeReflectionLM:
    """Reflects on many records at once: k = ⌊√n⌋ concurrent calls, then one that combines their proposals.

    ``lm``: a model's name (through LiteLLM) or any callable from prompt to text. ``duplication_factor``: copies of
    each record, in different groups. ``rng``: seeds the groups; None: GEPA's own, if it has one.
    ``batch_reflection``: several jobs share two waves of calls if ``lm`` has ``batch_complete``.

    ``max_workers``: concurrent calls; 1 for an ``lm`` that threads must not share. ``retries``: repeats of a call
    that raised, after ``retry_wait_s`` and twice as long each further time.
    """

    def __init__(
        self,
        lm: Callable[[Any], str] | str,
        reflection_prompt_template: Templates = None,
        aggregation_prompt_template: str | None = None,
        duplication_factor: int = 2,
        rng: Random | None = None,
        logger: Any | None = None,
        batch_reflection: bool = True,  # noqa: FBT001, FBT002 - the parameter order of GEPA's own class
        *,
        lm_kwargs: Mapping[str, Any] | None = None,
        max_workers: int = MAX_WORKERS,
        retries: int = 0,
        retry_wait_s: float = 0.5,
    ) -> None:
        if isinstance(duplication_factor, bool) or not isinstance(duplication_factor, int):
            # GEPA's own class raises this type.
            raise ValueError(f"duplication_factor must be an integer, not {duplication_factor!r}")  # noqa: TRY004
        if min(duplication_factor, max_workers, retries + 1) < 1:
            raise ValueError("duplication_factor and max_workers must be at least 1, retries at least 0")
        self._model = lm if isinstance(lm, str) else None
        self._has_own_kwargs = lm_kwargs is not None
        self.lm: Any = language_model(lm, lm_kwargs)
        self._knows_cost = knows_cost(lm)
        check(reflection_prompt_template)
        self._has_own_template = reflection_prompt_template is not None
        self.reflection_prompt_template = reflection_prompt_template
        # An empty template is a mistake, not the default.
        given = aggregation_prompt_template
        self.aggregation_prompt_template = AGGREGATION_TEMPLATE if given is None else given
        check(self.aggregation_prompt_template)
        self.duplication_factor = duplication_factor
        self._has_own_rng = rng is not None
        self._rng = rng or Random(0)  # noqa: S311 - reproducible, not secret
        self.logger = logger
        self._batch_reflection = batch_reflection
        self._caller = Caller(max_workers=max_workers, retries=retries, retry_wait_s=retry_wait_s)
        self._warned: set[str] = set()
        self._attempt: Attempt | None = None

    # ---- cost

    @property
    def total_cost(self) -> float:
        """Cost of all calls in dollars, as reported by the model."""
        return float(getattr(self.lm, "total_cost", 0.0))

    @property
    def total_tokens_in(self) -> int:
        """Tokens that the model read."""
        return int(getattr(self.lm, "total_tokens_in", 0))

    @property
    def total_tokens_out(self) -> int:
        """Tokens that the model wrote."""
        return int(getattr(self.lm, "total_tokens_out", 0))

    def supports_cost_tracking(self) -> bool:
        """Return whether ``total_cost`` is a provider's reported cost."""
        return self._knows_cost

    # ---- values bound by GEPA; arguments of the constructor have precedence

    def bind_rng(self, rng: Random) -> None:
        """Draw seeds from the run's own generator."""
        if not self._has_own_rng:
            self._rng = rng

    def bind_logger(self, logger: Any) -> None:
        """Use the run's logger."""
        if self.logger is None:
            self.logger = logger

    def bind_lm_kwargs(self, lm_kwargs: Mapping[str, Any] | None) -> None:
        """Use the run's options for a model given by name."""
        if self._model is not None and not self._has_own_kwargs and lm_kwargs is not None:
            self.lm = language_model(self._model, lm_kwargs)

    def bind_reflection_prompt_template(self, template: Templates) -> None:
        """Use the run's template at level 1."""
        if not self._has_own_template:
            check(template)
            self.reflection_prompt_template = template
            self._warned.clear()

    # ---- reflection

    def reflect(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> tuple[ReflectionProposal, "CombeeReflectionLM"]:
        """Return new texts of a candidate's components; after a failed ``reflect_many``, the next job's."""
        job = (candidate, reflective_dataset, components_to_update)
        attempt = self._attempt
        if attempt is None:
            return self._reflected([job])[0]
        number = attempt.next_job
        attempt.next_job += 1
        try:
            return self._reflected([job], first=number)[0]
        finally:
            if attempt.next_job >= len(attempt.jobs):
                self._attempt = None

    def reflect_many(
        self, jobs: Sequence[ReflectionJob]
    ) -> list[tuple[ReflectionProposal, "CombeeReflectionLM"]]:
        """Return the proposals of several jobs; if one fails, all do, and a repeat pays for no call twice."""
        identity = tuple(map(repr, jobs))
        if self._attempt is None or self._attempt.jobs != identity:
            self._attempt = Attempt(identity)
        before = self._rng.getstate()
        try:
            done = self._reflected(jobs)
        except Exception:
            self._rng.setstate(before)
            raise
        self._attempt = None
        return done

    def _reflected(
        self, jobs: Sequence[ReflectionJob], first: int = 0
    ) -> list[tuple[ReflectionProposal, "CombeeReflectionLM"]]:
        takes_batches = callable(getattr(self.lm, "batch_complete", None))
        batched = self._batch_reflection and takes_batches and len(jobs) > 1
        plans = [plan for number, job in enumerate(jobs, first) for plan in self._planned(number, job)]
        # Without batches the components follow one after the other, as in GEPA.
        for together in [plans] if batched else [[plan] for plan in plans]:
            level_1 = [call for plan in together for call in plan.level_1]
            self._caller.ask(self.lm, level_1, self._attempt, batched=batched)
            for plan in together:
                plan.combine = self._combine(plan)
            combines = [plan.combine for plan in together if plan.combine]
            self._caller.ask(self.lm, combines, self._attempt, batched=batched)
        proposals = [ReflectionProposal(new_texts={}) for _ in jobs]
        for plan in plans:
            plan.write(proposals[plan.job - first])
        for number, proposal in enumerate(proposals, first):
            calls = sum(plan.calls for plan in plans if plan.job == number)
            proposal.metadata["combee:total_lm_calls"] = calls
        return [(proposal, self) for proposal in proposals]

    # ---- planning

    def _planned(self, number: int, job: ReflectionJob) -> Iterator[Plan]:
        candidate, dataset, components = job
        for place, name in enumerate(components):
            if not dataset.get(name):
                self._log(f"Component '{name}' is not in reflective dataset. Skipping.")
                continue
            if name not in candidate:
                self._log(f"Component '{name}' is missing from candidate. Skipping.")
                continue
            records = list(dataset[name])
            seed, groups = self._dealt(name, len(records))
            template = self._template(name)
            plan = Plan(job=number, place=place, name=name, current=candidate[name], seed=seed, groups=groups)
            plan.level_1 = [
                Call(
                    (number, place, 0, index, 0),
                    prompt_of(plan.current, [records[at] for at in group], template),
                )
                for index, group in enumerate(groups)
            ]
            yield plan

    def _dealt(self, name: str, count: int) -> tuple[int | None, Sequence[Sequence[int]]]:
        """Return the seed and the groups of ``count`` records."""
        groups = shuffle.group_count(count)
        if groups == 1:
            self._log(
                f"Combee: component '{name}' has n={count} reflection records (k=1); falling back to standard"
                f" single-call reflection. Raise reflection_minibatch_size to >= {shuffle.COPIES_FROM}."
            )
            return None, (tuple(range(count)),)
        seed = self._rng.getrandbits(63)
        copies = shuffle.effective_copies(count, self.duplication_factor, groups)
        return seed, shuffle.deal(count, copies, groups, seed)

    def _combine(self, plan: Plan) -> Call | None:
        """Return the call that combines a plan's proposals, None for fewer than two."""
        records = [{"Proposed Instruction Update": proposal.content} for proposal in plan.proposals]
        if len(records) < 2:  # noqa: PLR2004 - there is nothing to combine
            return None
        prompt = prompt_of(plan.current, records, self.aggregation_prompt_template)
        return Call((plan.job, plan.place, 1, 0, 0), prompt)

    def _template(self, name: str) -> str | None:
        given = self.reflection_prompt_template
        if not isinstance(given, dict):
            return given
        if name not in given and name not in self._warned:
            self._warned.add(name)
            self._log(f"No reflection_prompt_template found for parameter '{name}'. Using default template.")
        return given.get(name)

    def _log(self, line: str) -> None:
        if self.logger is not None:
            self.logger.log(line)
