"""What verbs share: printing, options, the log that they read, the commands that they send."""
