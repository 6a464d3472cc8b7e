"""Studies: many fits of one problem (ensembles, sweeps, hyper-parameters), and where the time of one goes."""

from sciml.studies.ensemble import Ensemble, ensemble
from sciml.studies.profile import Profile, profile
from sciml.studies.sweep import sweep
from sciml.studies.tune import Tuning, tune

__all__ = ["Ensemble", "Profile", "Tuning", "ensemble", "profile", "sweep", "tune"]
