"""Studies: many fits of one problem (ensembles, sweeps, hyper-parameters), and what one takes in time and memory."""

from sciml.studies.ensemble import Ensemble, ensemble
from sciml.studies.memory import memory
from sciml.studies.profile import Profile, profile
from sciml.studies.sweep import sweep
from sciml.studies.tune import Tuning, tune

__all__ = ["Ensemble", "Profile", "Tuning", "ensemble", "memory", "profile", "sweep", "tune"]
