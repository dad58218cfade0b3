/* One journal of a database, two servers that may write it, and one worker: epoch, lease, fence,
 * adoption of a lent call, forwarding. docs/models/README.md explains it, and names the laws.
 *
 * LENDING checks lent calls, and otherwise reads are checked: together they have too many states.
 * JUMP lets the clock of the database jump ahead: then denials alone must be right.
 * Mutations, each of which breaks a law:
 *   NO_CLOCK      a writer answers from its memory without a look at its lease
 *   LATE_CLOCK    a renewal counts from its answer, not from the moment before it was sent
 *   NO_FENCE      a change of a former writer takes effect
 *   NO_CONFIRM    a writer denies an id without asking the database (with JUMP)
 *   NO_CLAIM      a worker runs a call that was delivered twice (with LENDING)
 */

#define LEASE 2
#define END 6              /* the last tick */
#define MOST 2             /* facts of clients */
#define NOBODY 2

byte now;                  /* true time; all monotonic clocks tick with it */
byte ahead;                /* how far the clock of the database has jumped */

/* The row of the journal, and its facts. */
byte epoch, until, facts;
bool lent, settled;        /* two more facts: the call was lent, its result was read */

/* The call at its worker, in the tables beside the journal. */
bool offered, claimed, ended;
byte effects;

byte acked;                /* the last fact that was acknowledged to a client */

/* What each server believes. */
byte mine[2];              /* the epoch in which it writes; 0 if it does not */
byte known[2];             /* the facts in its memory */
byte confirmed[2];         /* when its last confirmed renewal was sent */
byte seen = NOBODY;        /* the writer by the last look: it may be out of date */

#ifdef NO_CLOCK
#define FRESH(me) true
#else
#define FRESH(me) (now < confirmed[me] + LEASE)
#endif

#ifdef NO_FENCE
#define IS_MINE(me) (mine[me] != 0)
#else
#define IS_MINE(me) (epoch == mine[me])
#endif

inline let_go(me) { mine[me] = 0; known[me] = 0; confirmed[me] = 0 }

active proctype Clock() {
  do
  :: now < END -> now++
#ifdef JUMP
  :: ahead == 0 -> ahead = LEASE
#endif
  :: now == END -> break
  od
}

proctype Server(byte me) {
  byte sent, next;
end:
  do
  /* Take the journal over. The statement takes effect some time after it was sent. */
  :: atomic { mine[me] == 0 && now < END -> sent = now };
     atomic {
       if
       :: until < now + ahead || epoch == 0 ->
          epoch++; until = now + ahead + LEASE;
          mine[me] = epoch; known[me] = facts; confirmed[me] = sent; seen = me
       :: else
       fi;
       sent = 0
     }
  /* Renew the lease, or commit a fact. The answer may come late, or never. */
  :: atomic { mine[me] != 0 && now < END -> sent = now };
     atomic {
       if
       :: IS_MINE(me) ->
          until = now + ahead + LEASE;
          if
          :: next = 0
#ifndef LENDING
          :: facts < MOST -> facts++; next = facts
#endif
          fi
       :: else -> let_go(me); sent = 0; next = 0; goto end     /* fenced */
       fi
     };
     atomic {
       if
       :: true ->
#ifdef LATE_CLOCK
          confirmed[me] = now;
#else
          confirmed[me] = sent;
#endif
          if :: next > known[me] -> known[me] = next :: else fi;
          if :: next > acked -> acked = next :: else fi;       /* its client is told */
          assert(acked <= facts)                               /* the receipt is durable */
       :: next == 0                                            /* the answer is lost */
       fi;
       sent = 0; next = 0
     }
#ifdef LENDING
  /* Lend the call: a fact of the journal, and a row for workers, in one statement. */
  :: atomic { mine[me] != 0 && !lent ->
       if
       :: IS_MINE(me) -> lent = true; offered = true
       :: else -> let_go(me)
       fi
     }
  /* Deliver it again: the next writer cannot know whether the row was seen. */
  :: atomic { mine[me] != 0 && lent && !offered && !settled ->
       if
       :: IS_MINE(me) -> offered = true
       :: else -> let_go(me)
       fi
     }
  /* Adopt the result, whoever has lent the call: decide first, then commit under the fence. */
  :: mine[me] != 0 && ended && !settled ->
     atomic {
       if
       :: IS_MINE(me) ->
#ifndef NO_FENCE
          assert(!settled);                                    /* it is read once */
#endif
          settled = true
       :: else -> let_go(me)
       fi
     }
#endif
  :: now == END -> break
  od
}

#ifdef LENDING
/* It claims each delivery, and runs the call once. */
active proctype Worker() {
  bool runs;
  do
  :: atomic { offered -> offered = false;
#ifdef NO_CLAIM
       runs = true
#else
       runs = !claimed; claimed = true
#endif
     };
     atomic {
       if
       :: runs -> effects++; assert(effects <= 1); ended = true; runs = false
       :: else
       fi
     }
  :: now == END -> break
  od
}
#else
/* Asks any server for the newest fact. A server passes the request on at most once. */
active proctype Reader() {
  byte before, value, at;
  bool forwarded;
  do
  :: atomic { now < END -> before = acked;
       if
       :: at = 0
       :: at = 1
       fi };
asked:
     if
     :: atomic { mine[at] != 0 && FRESH(at) -> value = known[at] };
        atomic {                               /* the answer was made, and is checked now */
          if
#ifndef JUMP
          :: FRESH(at) -> assert(value >= before)    /* no read is stale */
#endif
          :: true                                    /* 503 */
          fi
        }
     :: atomic { mine[at] != 0 && known[at] < before -> value = mine[at] };
        atomic {                               /* unknown here: 404 if the database confirms it */
          if
#ifdef NO_CONFIRM
          :: mine[at] == value -> assert(false)
#else
          :: epoch == value && mine[at] == value && known[at] < before -> assert(false)
#endif
          :: else                                    /* 503 */
          fi
        }
     :: atomic { !forwarded && seen != NOBODY && seen != at -> forwarded = true; at = seen };
        goto asked
     :: true                                         /* 503 */
     fi;
     atomic { before = 0; value = 0; at = 0; forwarded = false }
  :: now == END -> break
  od
}
#endif

init { atomic { run Server(0); run Server(1) } }
