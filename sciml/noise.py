"""Noise models: how measurements scatter about what is measured."""

from sciml.problem.noise import Huber, LogNormal, Noise, Normal, Poisson, StudentT

__all__ = ["Huber", "LogNormal", "Noise", "Normal", "Poisson", "StudentT"]
