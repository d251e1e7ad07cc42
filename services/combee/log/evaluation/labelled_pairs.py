"""The labelled pairs that come with Combee, with which the rule of similarity is measured."""

import tomllib
from importlib.resources import files

from combee.core.text.similarity.measuring import Pair, pairs_of


def labelled_pairs() -> tuple[Pair, ...]:
    """Return the pairs, in the order of their file."""
    text = files("combee.log.evaluation").joinpath("labelled_pairs.toml").read_text("utf-8")
    return tuple(pairs_of(tomllib.loads(text)["lesson"]))
