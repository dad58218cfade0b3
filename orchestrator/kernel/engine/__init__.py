"""The engine: takes turns, starts and settles tasks, delivers replies.

**Budgets.** A budget is an account. Before a model call the engine *reserves* the most that the
call may use on every account around its task, and makes the fact `ModelCalled` durable. A call
that does not fit waits while other calls hold reservations, and ends `over_budget` when no refund
could help. When the call ends, one synchronous step replaces the reservation by the booked usage.
Wrappers ask the port `Attempts` before every further request: retries, fallbacks, summaries. If
no provider reports the usage, the accounts keep the reservation and the tree shows an estimate.

**Approvals.** The rules of the agent and of every ancestor judge a call, and the strictest
decides. Without any rule, the effect of the tool on the machine decides (decision 26). The
question and the verdict are facts. A call that waits for its approval has not run, so after a
crash it waits again. The tool receives the approved value (`ApprovedCall`) and checks each file
against it on opening.

**Deliveries.** A door receives each reply once, and `ReplyDelivered` records that its reader took
it. The engine asks a door that raises again, at growing intervals. An undelivered reply waits in
the journal for the next door. A crash between taking and recording delivers the reply twice; a
door that must not repeat it compares `Reply.turn`.
"""
