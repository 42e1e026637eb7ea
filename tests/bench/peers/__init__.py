"""What a turn costs here and in other stores of conversations, on one PostgreSQL server.

Run: `python -m tests.bench.peers [--lengths 10,100] [--peers adk,agno] [--json FILE]`. Each store has a database
of its own and is used through its public interface. The candidates take turns, so that the machine's noise meets
all alike; compare the ratios, not the milliseconds.
"""
