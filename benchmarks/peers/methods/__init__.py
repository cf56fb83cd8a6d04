"""Every optimiser that is compared, each through its own ask and tell, and uniform draws."""
