"""The servers of a store on MySQL: which there are, what is asked of them, where statements go.
In ``steward/`` who takes writes is decided, ``local/`` starts servers on loopback.
"""
