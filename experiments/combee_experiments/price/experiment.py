"""``price``: what curators' calls cost for each lesson kept, next to ACE's and GEPA's releases on the same stream.

A playbook that is full, 30 lessons that 150 reflections say, batches of 40.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

from combee.adapters.ports import FatalError
from combee.core.methods import gepa
from combee_experiments.arms.arms import ADAPTIVE, Arm
from combee_experiments.arms.learning import iterate
from combee_experiments.arms.material import reflections
from combee_experiments.arms.tails import Pace
from combee_experiments.data.generated import filled
from combee_experiments.data.samples import Data, family
from combee_experiments.price import releases
from combee_experiments.price.server import CachingServer
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report
from combee_experiments.running.setup import Setup
from combee_experiments.scoring.lessons import lessons_of
from combee_schemas.base import Usage
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_sim.inprocess import SimulatedModel
from combee_sim.law.law import Law
from combee_sim.law.rules import IN_FORCE, parse_law
