"""The problems of docs/benchmarks.md, solved without settings and timed; run: make bench."""
