"""Parts of every service: consume loop, sessions, retry, views, dead letters."""
