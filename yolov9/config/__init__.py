"""Settings of every command, recipes, model graphs and the environment variables that the program reads."""
