"""Running an experiment: cells, results, reports, plots."""
