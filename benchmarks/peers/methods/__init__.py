"""The optimizers that are compared, each with an ask and tell, and uniform draws."""
