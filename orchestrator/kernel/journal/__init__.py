"""The journal: its ports, its writer, its readers, and the backends that store it.

**Writing.** `Bookkeeper.post` redacts a fact, encodes it, folds it into the ledger and appends
it; the next commit makes it durable. Code waits for that commit before it acts on the world:
before a model call, before a tool, before a client gets an answer or a receipt. A crash therefore
loses only facts that no code has acted on. A commit starts when a task waits for it, and at once
for an answer that a model was paid for.

**Opening.** Opening a journal posts `JournalOpened`. The fold of that fact marks every running
task as *interrupted*; there is no other recovery path. Idle sessions stay on disk, so opening
costs only the sessions that are under way.

**Damage.** Each entry has a checksum and the number of the entry before it in its session. The
journal refuses a damaged session and goes on with the others (decision 25). A session with
thousands of facts also has a snapshot of its fold. A snapshot saves time and decides nothing: the
journal ignores one that does not fit the code, the rules or its checksum.

**Addresses.** A file holds one journal. A folder or a database holds one for each process that
writes at the same time. A process takes the first free journal in which no work waits, or creates
another. A session never moves to another journal, and `seq` numbers the entries of one journal.
"""
