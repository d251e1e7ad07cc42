"""What every service is made of: consume loop, sessions, retry, views, dead letters."""
