"""Lists the models that other programs have downloaded to this machine, one module per program; imports no torch."""
