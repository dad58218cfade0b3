"""Many machines: journals in Postgres, and workers that run lent calls.

One tree has one writer, so every law holds unchanged (decision 27). Sessions are divided over the
journals of a database. An epoch and a lease hold a journal, and each statement of its writer
takes effect only in its epoch. The writer lends calls and turns to workers, and alone decides.
Facts name the machine of commands and folders, and a writer makes no claim about another machine.
`docs/cluster.md` describes operation.
"""
