"""The shuffle service, which runs on Faust: reflections become batches."""
