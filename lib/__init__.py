"""The code behind *Generalization, Measured*: import the module of the chapter that you read."""
