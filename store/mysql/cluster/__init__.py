"""The servers of a store on MySQL: their topology, their state, and where statements go.

``steward/`` decides who takes writes, ``local/`` starts servers on loopback.
"""
