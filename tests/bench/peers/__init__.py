"""What a turn costs here and in other stores of conversations, on one PostgreSQL server.

Run: `make bench-peers`, or a part of it: `python -m tests.bench.peers [--lengths 10,100] [--peers adk,agno]
[--json FILE]`. Each store has a database of its own and is used through its public interface; the passages go
where it has a place for metadata. The candidates take turns in random order, so that the machine's noise meets
all alike; compare the ratios, not the milliseconds. Of many writers' turns, those are refused whose writer got
an error, and those lost that aren't there although nobody was told.
"""
