"""A copy of the data set on faster storage, for the time of a run. Each part is imported when it is used."""
