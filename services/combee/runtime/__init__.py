"""What every service shares: settings, the consume loop, logging."""
