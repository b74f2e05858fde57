"""Graphs that `torch.compile` captures: read, traced again, and run as schedules say.

`backend` is what Dynamo calls, and `session` what it knows of a model. The steps
between them are functions, for systems that have a graph of Dynamo in hand:
`retrace.retrace`, `modules.compile_graph` and `calls.GraphCall`, over the data in
`model`.
"""
