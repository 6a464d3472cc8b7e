"""The problems of docs/benchmarks.md and of the gallery, solved without settings and timed; run: make bench, make gallery."""
