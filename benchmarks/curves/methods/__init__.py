"""The methods that are compared: adapters from their interfaces to that of the simulation."""
