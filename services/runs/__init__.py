"""A question being answered: its row, its worker, its journal, its readers, and what happens when a process dies.

`rows` and `finding` are the table; `live` is a run of this process and `workers` all of them; `keeper` writes the
`journal`, `tape` holds what readers may see, `reading` is one reader's way; `follower` reads other processes' runs,
`recovery` ends what they lost.
"""
