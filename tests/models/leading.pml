/* Which replica leads a shard, and what is confirmed: the protocol of commitlog_svc/replication, for Spin (docs/adr/0178).

   Replicas, each with a log, copy the log of the leader. A coordinator keeps a record of the leader and the in-sync set, and does one
   thing: it replaces exactly the version that the writer has read. Read `replica` first (its steps are those of
   leadership_rules.py and leader_side.py), then `link` (a leader and a replica that follows it), then what must hold: the
   assertions in `lead`, `confirm` and `cut`.

   A step never has to happen. So processes that stop, links that are cut and a coordinator that is away need no steps of their own.

   What is one step here takes time in the code. Each of these loses nothing:
   - A read of the record. An answer that is under way longer is a read made earlier, whose reader waits longer.
   - A write and its answer, but for a takeover. A write that arrives late is one asked for later, with less of a lease. A write
     that was given up is a stray, which may arrive at any time.
   - What a leader sends and its follower writes and flushes. A message that is under way longer promises less. A follower may take
     bytes without a promise: it may stand already.

   What is not covered: lost disks and store ids (tests/commitlog_svc/replication/leading simulates them), data of the coordinator that
   is replaced by an older copy, a record that an operator makes anew, requests of several records, fetched files, `config/`.

   Times are ticks. The clock of a leader may be the slowest and that of a candidate the fastest: LEASE is how many ticks of true time
   a lease lasts at most, PATIENCE how many a candidate waits at least. PATIENCE >= LEASE says that clocks drift within the bound.

   The bounds are macros, with their defaults below. BROKEN_... breaks a rule each, and the check finds it (test_leading.py,
   test_traces.py). SEE(what, who, whom, number) names a step for traces of the real rules (traces.py); in a search it is true. */

#ifndef REPLICAS
#define REPLICAS 3
#endif
#ifndef EPOCHS
#define EPOCHS 3
#endif
#ifndef LENGTH              /* entries of a log */
#define LENGTH 1
#endif
#ifndef LEASE
#define LEASE 1
#endif
#ifndef PATIENCE
#define PATIENCE LEASE
#endif
#ifndef RESTARTS            /* power cuts and kills; a resignation is none */
#define RESTARTS 1
#endif
#ifndef STRAYS
#define STRAYS 1
#endif
#ifndef FORCES              /* of an operator */
#define FORCES 0
#endif
#ifndef LOSSES              /* of the coordinator's data */
#define LOSSES 0
#endif
#ifndef CHANGES             /* of the in-sync set; ANY: without a limit, and without a count */
#define CHANGES ANY
#endif
#ifndef HAND_OVERS
#define HAND_OVERS ANY
#endif
#ifndef SLOW_REPORTS        /* a follower's report takes any time */
#define SLOW_REPORTS 0
#endif
#ifndef SLOW_FLUSHES        /* a leader sends what it has not flushed */
#define SLOW_FLUSHES 0
#endif

#define NOBODY REPLICAS
#define NOWHERE 255
#define ANY 255
#define ALL ((1 << REPLICAS) - 1)
#define ONLY(one) (1 << (one))
#define HAS(set, one) (((set) >> (one)) & 1)

#ifdef TRACE
#include "trace.pml"
#else
#define SEE(what, who, whom, number) true
#define TAKEN(i, j) r[i].length
#define SEEN k = 0
#endif

mtype = { UNKNOWN, FOLLOWER, LEADER };

/* record.py. A version is no number here: whoever holds one only asks whether it is still the stored one. */
typedef Record {
    byte epoch;         /* 0: there is no record */
    byte leader;        /* NOBODY: it gave up, or an operator took it away */
    byte in_sync;       /* a set */
    byte heir           /* hand_over_to */
}

typedef Replica {
    /* On the disk. An entry is the epoch in which it was written: one leader writes an epoch, in order. */
    byte log[LENGTH];
    byte length;
    byte begin[EPOCHS + 1];     /* where each epoch begins; NOWHERE: it is not in the table */
    byte last_epoch;
    /* Of this life. */
    mtype role;
    Record known;
    bool is_fresh;              /* the record that is known is the stored version */
    byte patience;              /* ticks until it may stand: since it heard the leader, or saw another version */
    byte attempt;               /* epoch of a takeover that may still take effect, or did */
    bool is_elected;            /* the answer to a takeover that was stored is under way */
    bool is_elected_fresh;      /* and its version is still the stored one */
    byte elected_left;          /* ticks of the lease, which began with the call */
    /* As a leader. */
    byte lease;
    byte pending;               /* sets that may have been stored */
    byte flushed;
    byte confirmed;
    /* As a leader, of each follower. */
    byte streams;               /* a set */
    byte promise[REPLICAS];     /* ticks */
    byte settled[REPLICAS];     /* durable there, as it said */
    byte reports;               /* a set: its report is under way */
    byte report_length[REPLICAS];
    byte report_promise[REPLICAS]
}

Record stored;
Record stray;           /* a write that was given up and may arrive; epoch 0: none */
Replica r[REPLICAS];
byte strays = STRAYS;
byte restarts = RESTARTS;
byte forces = FORCES;
byte losses = LOSSES;
byte changes = CHANGES;
byte hand_overs = HAND_OVERS;

/* What the outside knows: the entries that were confirmed, in which epoch, and which replica led each epoch. */
byte truth[LENGTH];
byte truth_epoch[LENGTH];
byte truths;
byte led_by[EPOCHS + 1];    /* 1 + the replica */

/* Scratch of one step; 0 between steps. */
byte k;
byte least;
byte agreed;
byte end;

/* --- may_acknowledge */

#define IN_SYNC(i) (r[i].known.in_sync | r[i].pending)
#define NEEDS(i, j) (j < REPLICAS && (j) != (i) && HAS(IN_SYNC(i), j))
#define PROMISED(i, j) (r[i].promise[(j) % REPLICAS] > 0)
#ifdef BROKEN_ONE_PROMISE
#define HAS_PROMISES(i) (IN_SYNC(i) == ONLY(i) || (NEEDS(i, 0) && PROMISED(i, 0)) || (NEEDS(i, 1) && PROMISED(i, 1)) || \
    (NEEDS(i, 2) && PROMISED(i, 2)))
#else
#define HAS_PROMISES(i) ((!NEEDS(i, 0) || PROMISED(i, 0)) && (!NEEDS(i, 1) || PROMISED(i, 1)) && (!NEEDS(i, 2) || PROMISED(i, 2)))
#endif
#ifdef BROKEN_NO_LEASE_CHECK
#define MAY_ACKNOWLEDGE(i) (r[i].role == LEADER)
#else
#define MAY_ACKNOWLEDGE(i) (r[i].role == LEADER && (r[i].lease > 0 || HAS_PROMISES(i)))
#endif
#ifdef BROKEN_RESTORES_ALWAYS
#define MAY_RESTORE(i) (r[i].role == LEADER && stored.epoch == 0)
#else
#define MAY_RESTORE(i) (r[i].role == LEADER && stored.epoch == 0 && HAS_PROMISES(i))
#endif
#define IS_READY(i) (r[i].confirmed >= r[i].begin[r[i].known.epoch])

/* --- parts of steps */

inline copy_record(to, from) {
    to.epoch = from.epoch; to.leader = from.leader; to.in_sync = from.in_sync; to.heir = from.heir
}

inline clear_record(one) {
    one.epoch = 0; one.leader = 0; one.in_sync = 0; one.heir = 0
}

inline leave_streams(i) {
    for (k : 0 .. REPLICAS - 1) { r[k].streams = r[k].streams & ~ONLY(i) }
}

/* Every version that is known becomes an older one, and a stray can replace nothing any more. */
inline store(new_epoch, new_leader, new_in_sync, new_heir) {
    stored.epoch = new_epoch; stored.leader = new_leader; stored.in_sync = new_in_sync; stored.heir = new_heir;
    clear_record(stray);
    for (k : 0 .. REPLICAS - 1) { r[k].is_fresh = false; r[k].is_elected_fresh = false }
}

#define MAY_STRAY (strays > 0 && stray.epoch == 0)
inline go_astray(new_epoch, new_leader, new_in_sync, new_heir) {
    strays--; stray.epoch = new_epoch; stray.leader = new_leader; stray.in_sync = new_in_sync; stray.heir = new_heir
}

/* The process ends and starts again as a follower that knows nothing. */
inline restart(i) {
    r[i].role = UNKNOWN; clear_record(r[i].known); r[i].is_fresh = false;
#ifdef BROKEN_FORGETS_PROMISES
    r[i].patience = 0;
#else
    r[i].patience = PATIENCE;     /* the earlier life may have promised something just now */
#endif
    r[i].attempt = 0; r[i].is_elected = false; r[i].is_elected_fresh = false; r[i].elected_left = 0;
    r[i].lease = 0; r[i].pending = 0; r[i].flushed = 0; r[i].confirmed = 0; r[i].streams = 0; r[i].reports = 0;
    for (k : 0 .. REPLICAS - 1) {
        r[i].promise[k] = 0; r[i].settled[k] = 0; r[i].report_length[k] = 0; r[i].report_promise[k] = 0
    }
    leave_streams(i)
}

inline lose_unflushed(i) {
    for (k : 0 .. LENGTH - 1) {
        if
        :: r[i].role == LEADER && k >= r[i].flushed && k < r[i].length -> r[i].log[k] = 0
        :: else
        fi
    }
    if
    :: r[i].role == LEADER -> r[i].length = r[i].flushed
    :: else
    fi
}

/* An epoch has one leader, for one life. Everything confirmed in an earlier epoch is in its log. */
inline lead(i) {
    r[i].role = LEADER; r[i].attempt = 0; r[i].patience = 0; r[i].pending = 0;
    r[i].begin[r[i].known.epoch] = r[i].length; r[i].last_epoch = r[i].known.epoch; r[i].flushed = r[i].length;
    leave_streams(i);
    assert(led_by[r[i].known.epoch] == 0);
    led_by[r[i].known.epoch] = i + 1;
    for (k : 0 .. LENGTH - 1) {
        assert(k >= truths || truth_epoch[k] >= r[i].known.epoch || (k < r[i].length && r[i].log[k] == truth[k]))
    }
}

/* least = what all of the in-sync set have. */
inline find_least(i) {
    least = r[i].flushed;
    for (k : 0 .. REPLICAS - 1) {
        if
        :: NEEDS(i, k) && r[i].settled[k] < least -> least = r[i].settled[k]
        :: else
        fi
    }
}

/* No two replicas confirm at a time. What was confirmed never changes. */
inline confirm(i) {
    for (k : 0 .. REPLICAS - 1) { assert(k == i || !MAY_ACKNOWLEDGE(k)) }
    r[i].confirmed = least;
    for (k : 0 .. LENGTH - 1) {
        if
        :: k < least && k < truths -> assert(r[i].log[k] == truth[k])
        :: k < least && k >= truths -> truth[k] = r[i].log[k]; truth_epoch[k] = r[i].known.epoch; truths = k + 1
        :: else
        fi
    }
}

/* end = where the part of an epoch ends. */
inline find_end(i, epoch) {
    end = r[i].length;
    for (k : 1 .. EPOCHS) {
        if
        :: k > epoch && r[i].begin[k] < end -> end = r[i].begin[k]
        :: else
        fi
    }
}

/* agreed = up to where two logs are equal: the end of the last epoch that begins at the same offset in both (epochs.py). */
inline find_agreed(i, j) {
    least = EPOCHS;
    do
    :: least > 0 && (r[i].begin[least] == NOWHERE || r[i].begin[least] != r[j].begin[least]) -> least--
    :: else -> break
    od;
    agreed = 0;
    if
    :: least > 0 && r[j].length > 0 ->
        find_end(i, least); agreed = end;
        find_end(j, least); agreed = (end < agreed -> end : agreed)
    :: else
    fi;
    least = 0; end = 0
}

/* What the leader has not goes: nothing that was confirmed. */
inline cut(j) {
    for (k : 0 .. LENGTH - 1) {
        assert(k < agreed || k >= r[j].length || k >= truths || r[j].log[k] != truth[k]);
        r[j].log[k] = (k < agreed -> r[j].log[k] : 0)
    }
    r[j].length = agreed; r[j].last_epoch = 0;
    for (k : 1 .. EPOCHS) {
        if
        :: r[j].begin[k] < agreed -> r[j].last_epoch = k
        :: else -> r[j].begin[k] = NOWHERE
        fi
    }
}

/* --- one replica */

/* Only a member of the set takes over: at once where nobody leads, else when it has been patient. */
#define MAY_STAND(i) (r[i].role == FOLLOWER && !r[i].is_elected && HAS(r[i].known.in_sync, i) && \
    r[i].known.epoch >= r[i].last_epoch && r[i].known.epoch < EPOCHS && (r[i].attempt > 0 || r[i].patience == 0 || \
        (r[i].known.leader == i && r[i].known.in_sync == ONLY(i)) || \
        (r[i].known.leader == NOBODY && (r[i].known.heir == NOBODY || r[i].known.heir == i))))

proctype replica(byte i) {
    do
    /* A follower looks at the record. A version that is another one than before begins its wait anew. */
    :: d_step { SEE(READ, i, stored.leader, stored.epoch) && r[i].role != LEADER && !r[i].is_elected && !r[i].is_fresh ->
        if
        :: r[i].role == UNKNOWN ->
#ifndef BROKEN_FORGETS_PROMISES
            r[i].patience = PATIENCE;
#endif
            skip
        :: else -> r[i].patience = PATIENCE
        fi;
        if
        :: stored.leader != i || stored.epoch != r[i].attempt -> r[i].attempt = 0
        :: else
        fi;
        if
        :: r[i].known.leader != stored.leader || r[i].known.epoch != stored.epoch -> leave_streams(i)
        :: else
        fi;
        copy_record(r[i].known, stored); r[i].is_fresh = true; r[i].role = (stored.epoch > 0 -> FOLLOWER : UNKNOWN);
        SEEN }

    /* A candidate writes the next epoch over exactly the version that it knows: it is stored and the answer is under way, */
    :: d_step { SEE(TAKE_OVER, i, i, r[i].known.epoch + 1) && MAY_STAND(i) && r[i].is_fresh ->
        r[i].attempt = r[i].known.epoch + 1; r[i].elected_left = LEASE; r[i].is_elected = true;
        store(r[i].attempt, i, r[i].known.in_sync, NOBODY); r[i].is_elected_fresh = true;
        SEEN }
    /* or it is given up, and may be stored later or never, */
    :: d_step { SEE(TAKE_OVER_UNKNOWN, i, i, r[i].known.epoch + 1) && MAY_STAND(i) && r[i].is_fresh && MAY_STRAY ->
        r[i].attempt = r[i].known.epoch + 1;
        go_astray(r[i].attempt, i, r[i].known.in_sync, NOBODY);
        SEEN }
    /* or another version is stored. */
    :: d_step { SEE(CONFLICT, i, i, r[i].known.epoch + 1) && MAY_STAND(i) && !r[i].is_fresh && r[i].attempt > 0 -> r[i].attempt = 0; SEEN }

    /* The answer comes. The lease counts from the begin of the call. */
    :: d_step { SEE(ELECTED, i, i, r[i].attempt) && r[i].is_elected ->
        r[i].known.epoch = r[i].attempt; r[i].known.leader = i; r[i].known.heir = NOBODY;
        r[i].is_fresh = r[i].is_elected_fresh;
#ifdef BROKEN_COUNTS_FROM_ANSWER
        r[i].lease = LEASE;
#else
        r[i].lease = r[i].elected_left;
#endif
        r[i].is_elected = false; r[i].is_elected_fresh = false; r[i].elected_left = 0;
        lead(i);
        SEEN }
    /* Or it does not come. */
    :: d_step { SEE(ANSWER_LOST, i, i, r[i].attempt) && r[i].is_elected ->
        r[i].is_elected = false; r[i].is_elected_fresh = false; r[i].elected_left = 0;
        SEEN }

    /* A leader renews its lease. */
    :: d_step { SEE(RENEW, i, i, r[i].known.epoch) && r[i].role == LEADER && r[i].is_fresh ->
        store(r[i].known.epoch, i, r[i].known.in_sync, NOBODY); r[i].known.heir = NOBODY;
        r[i].is_fresh = true; r[i].lease = LEASE; r[i].pending = 0;
        SEEN }
    :: d_step { SEE(RENEW_LOST, i, i, r[i].known.epoch) && r[i].role == LEADER && r[i].is_fresh ->
        store(r[i].known.epoch, i, r[i].known.in_sync, NOBODY);
        SEEN }

    :: d_step { SEE(RENEW_UNKNOWN, i, i, r[i].known.epoch) && r[i].role == LEADER && r[i].is_fresh && MAY_STRAY ->
        go_astray(r[i].known.epoch, i, r[i].known.in_sync, NOBODY);
        SEEN }

    /* A leader whose version is not the stored one reads. Another epoch or leader: it resigns, and its process starts again. */
    :: d_step { SEE(READ, i, stored.leader, stored.epoch) && r[i].role == LEADER && !r[i].is_fresh && stored.epoch > 0 ->
        if
        :: stored.epoch == r[i].known.epoch && stored.leader == i -> copy_record(r[i].known, stored); r[i].is_fresh = true
        :: else -> restart(i)
        fi;
        SEEN }

    /* There is none any more: a leader whose promises hold writes its own back. */
    :: d_step { SEE(RESTORE, i, i, r[i].known.epoch) && MAY_RESTORE(i) ->
        store(r[i].known.epoch, i, r[i].known.in_sync, NOBODY); r[i].known.heir = NOBODY;
        r[i].is_fresh = true; r[i].lease = LEASE; r[i].pending = 0;
        SEEN }
    :: d_step { SEE(RESTORE_UNKNOWN, i, i, r[i].known.epoch) && MAY_RESTORE(i) && MAY_STRAY ->
        go_astray(r[i].known.epoch, i, r[i].known.in_sync, NOBODY);
        SEEN }

    /* It appends once it has confirmed all that it had when its epoch began. */
    :: d_step { SEE(APPEND, i, i, r[i].length + 1) && MAY_ACKNOWLEDGE(i) && IS_READY(i) && r[i].length < LENGTH ->
        r[i].log[r[i].length] = r[i].known.epoch; r[i].length++;
#if !SLOW_FLUSHES
        r[i].flushed = r[i].length;
#endif
        SEEN }
#if SLOW_FLUSHES
    :: d_step { r[i].role == LEADER && r[i].flushed < r[i].length -> r[i].flushed = r[i].length }
#endif

    /* It confirms what all of the set have on their disks, while nobody else can lead. */
    :: d_step { MAY_ACKNOWLEDGE(i) && r[i].confirmed < r[i].flushed ->
        find_least(i);
        if
        :: SEE(CONFIRM, i, i, least) && least > r[i].confirmed -> confirm(i); SEEN
        :: else
        fi;
        least = 0; k = 0 }

    /* The power fails, */
    :: d_step { SEE(START, i, i, 0) && restarts > 0 -> restarts--; lose_unflushed(i); restart(i); SEEN }
#if SLOW_FLUSHES
    /* or the process is killed. */
    :: d_step { SEE(START, i, i, 0) && restarts > 0 && r[i].role == LEADER && r[i].flushed < r[i].length -> restarts--; restart(i); SEEN }
#endif
    od
}

/* --- a leader i and a replica j that follows it */

#define KNOWS_LEADER(j, i) (r[j].role == FOLLOWER && r[j].known.leader == i && r[j].known.epoch == r[i].known.epoch && \
    r[j].last_epoch <= r[i].known.epoch)
#define CHANGE_WANTED(i) (r[i].role == LEADER && r[i].is_fresh && changes > 0)

inline ask_in_sync(i, wanted) {
    /* Until it is known which set is stored, both count. */
    least = wanted;
    changes = (changes == ANY -> ANY : changes - 1);
#ifdef BROKEN_SHRINKS_EARLY
    r[i].known.in_sync = least;
#endif
#ifdef BROKEN_GROWS_LATE
    r[i].pending = r[i].pending & least & r[i].known.in_sync
#else
    r[i].pending = r[i].pending | least
#endif
}

#define IS_FIT(i, j) (r[i].settled[j] >= r[i].confirmed && r[i].settled[j] >= r[i].begin[r[i].known.epoch])
#define MAY_GROW(i, j) (CHANGE_WANTED(i) && IS_FIT(i, j) && !HAS(r[i].known.in_sync, j))

inline take(i, j) {
    end = TAKEN(i, j);
    for (k : r[j].length .. LENGTH - 1) { r[j].log[k] = (k < end -> r[i].log[k] : 0) }
    r[j].length = end; end = 0;
    r[i].reports = r[i].reports | ONLY(j); r[i].report_length[j] = r[j].length
}

inline hear_report(i, j) {
    r[i].promise[j] = (r[i].report_promise[j] > r[i].promise[j] -> r[i].report_promise[j] : r[i].promise[j]);
    r[i].settled[j] = r[i].report_length[j];
    r[i].reports = r[i].reports & ~ONLY(j); r[i].report_length[j] = 0; r[i].report_promise[j] = 0
}

proctype link(byte i; byte j) {
    do
    /* The stream begins where the logs agree. What the leader has not is cut first, by a start of the process. */
    :: d_step { SEE(CONNECT, j, i, r[i].known.epoch) && r[i].role == LEADER && KNOWS_LEADER(j, i) ->
        find_agreed(i, j);
        r[i].reports = r[i].reports & ~ONLY(j); r[i].report_length[j] = 0; r[i].report_promise[j] = 0;
        r[i].settled[j] = (r[i].settled[j] > agreed -> agreed : r[i].settled[j]);
        if
        :: agreed < r[j].length -> cut(j); restart(j)
        :: else ->
            for (k : 1 .. EPOCHS) { r[j].begin[k] = r[i].begin[k] }
            r[j].last_epoch = r[i].last_epoch; r[i].streams = r[i].streams | ONLY(j)
        fi;
        agreed = 0;
        SEEN }

    /* A heartbeat, with bytes that the follower lacks. It answers only if it does not stand: an answer is a promise. */
    :: d_step { SEE(HEAR, j, i, TAKEN(i, j)) && HAS(r[i].streams, j) && !HAS(r[i].reports, j) ->
        take(i, j);
        if
#ifdef BROKEN_PROMISES_WHILE_STANDING
        :: true ->
#else
        :: r[j].attempt == 0 ->
#endif
            r[i].report_promise[j] = LEASE;
#ifndef BROKEN_DOES_NOT_LISTEN
            r[j].patience = PATIENCE;
#endif
            skip
        :: else
        fi;
#if !SLOW_REPORTS
        hear_report(i, j);
#endif
        SEEN }
    /* Bytes without an answer: its call to the coordinator is under way. */
    :: d_step { SEE(TAKE, j, i, TAKEN(i, j)) && HAS(r[i].streams, j) && !HAS(r[i].reports, j) && r[j].length < r[i].length ->
        take(i, j);
#if !SLOW_REPORTS
        hear_report(i, j);
#endif
        SEEN }
#if SLOW_REPORTS
    :: d_step { SEE(REPORT, i, j, r[i].report_length[j]) && HAS(r[i].reports, j) -> hear_report(i, j); SEEN }
#endif

    /* A leader counts each member of the set that it wants, before it asks for that, and until a later write has succeeded. */
    :: d_step { SEE(COUNT, i, j, r[i].known.epoch) && r[i].role == LEADER && changes > 0 && (HAS(IN_SYNC(i), j) || IS_FIT(i, j)) ->
        r[i].pending = r[i].pending | ONLY(j);
        SEEN }

    /* One that is slow leaves the set; one that has all that is confirmed comes in. */
    :: d_step { SEE(SMALLER, i, j, r[i].known.epoch) && CHANGE_WANTED(i) && HAS(IN_SYNC(i), j) ->
        ask_in_sync(i, IN_SYNC(i) & ~ONLY(j));
        store(r[i].known.epoch, i, least, NOBODY);
        r[i].known.in_sync = least; r[i].known.heir = NOBODY; r[i].is_fresh = true; r[i].lease = LEASE; r[i].pending = 0;
        least = 0;
        SEEN }
    :: d_step { SEE(SMALLER_LOST, i, j, r[i].known.epoch) && CHANGE_WANTED(i) && HAS(IN_SYNC(i), j) ->
        ask_in_sync(i, IN_SYNC(i) & ~ONLY(j));
        store(r[i].known.epoch, i, least, NOBODY);
        least = 0;
        SEEN }
    :: d_step { SEE(SMALLER_UNKNOWN, i, j, r[i].known.epoch) && CHANGE_WANTED(i) && HAS(IN_SYNC(i), j) && MAY_STRAY ->
        ask_in_sync(i, IN_SYNC(i) & ~ONLY(j));
        go_astray(r[i].known.epoch, i, least, NOBODY);
        least = 0;
        SEEN }
    :: d_step { SEE(LARGER, i, j, r[i].known.epoch) && MAY_GROW(i, j) ->
        ask_in_sync(i, IN_SYNC(i) | ONLY(j));
        store(r[i].known.epoch, i, least, NOBODY);
        r[i].known.in_sync = least; r[i].known.heir = NOBODY; r[i].is_fresh = true; r[i].lease = LEASE; r[i].pending = 0;
        least = 0;
        SEEN }
    :: d_step { SEE(LARGER_LOST, i, j, r[i].known.epoch) && MAY_GROW(i, j) ->
        ask_in_sync(i, IN_SYNC(i) | ONLY(j));
        store(r[i].known.epoch, i, least, NOBODY);
        least = 0;
        SEEN }
    :: d_step { SEE(LARGER_UNKNOWN, i, j, r[i].known.epoch) && MAY_GROW(i, j) && MAY_STRAY ->
        ask_in_sync(i, IN_SYNC(i) | ONLY(j));
        go_astray(r[i].known.epoch, i, least, NOBODY);
        least = 0;
        SEEN }

    /* A leader gives up for a member of its set, or for any member where a change has taken that one out. It acknowledges nothing from
       the begin of the call on, and its process ends. */
    :: d_step { SEE(HAND_OVER, i, j, r[i].known.epoch) && r[i].role == LEADER && r[i].is_fresh && hand_overs > 0 ->
        hand_overs = (hand_overs == ANY -> ANY : hand_overs - 1);
        least = (HAS(r[i].known.in_sync, j) -> j : NOBODY);
        store(r[i].known.epoch, NOBODY, r[i].known.in_sync, least); restart(i);
        least = 0;
        SEEN }
    :: d_step { SEE(HAND_OVER_UNKNOWN, i, j, r[i].known.epoch) && r[i].role == LEADER && r[i].is_fresh && hand_overs > 0 && MAY_STRAY ->
        hand_overs = (hand_overs == ANY -> ANY : hand_overs - 1);
        least = (HAS(r[i].known.in_sync, j) -> j : NOBODY);
        go_astray(r[i].known.epoch, NOBODY, r[i].known.in_sync, least); restart(i);
        least = 0;
        SEEN }
    od
}

/* --- the rest of the world */

#define LESS(one) one = (one > 0 -> one - 1 : 0)

/* Time passes. A write that was given up arrives. The coordinator loses its data. */
proctype world() {
    do
    :: d_step { SEE(TICK, 0, 0, 0) ->
        for (k : 0 .. REPLICAS - 1) {
            LESS(r[k].lease); LESS(r[k].elected_left); LESS(r[k].patience);
            for (end : 0 .. REPLICAS - 1) { LESS(r[k].promise[end]); LESS(r[k].report_promise[end]) }
        }
        end = 0;
        SEEN }
    :: d_step { SEE(STRAY, stray.leader, stray.leader, stray.epoch) && stray.epoch > 0 ->
        store(stray.epoch, stray.leader, stray.in_sync, stray.heir);
        SEEN }
    :: d_step { SEE(LOSE, 0, 0, stored.epoch) && losses > 0 && stored.epoch > 0 ->
        losses--;
        store(0, 0, 0, 0);
        SEEN }
    od
}

/* An operator makes a replica lead, whatever it has: only where no leader runs (docs/replicas.md). The command says what is lost:
   the confirmed entries that this replica lacks. Nothing else may be lost. */
proctype operator(byte i) {
    do
    :: d_step { SEE(FORCE, i, i, stored.epoch + 1) && forces > 0 && stored.epoch > 0 && stored.epoch + 1 < EPOCHS && r[0].role != LEADER &&
                r[1].role != LEADER && r[REPLICAS - 1].role != LEADER ->
        forces--;
        do
        :: agreed < truths && agreed < r[i].length && r[i].log[agreed] == truth[agreed] -> agreed++
        :: else -> break
        od;
        for (k : 0 .. LENGTH - 1) {
            if
            :: k >= agreed -> truth[k] = 0; truth_epoch[k] = 0
            :: else
            fi
        }
        truths = agreed; agreed = 0;
        store(stored.epoch + 1, NOBODY, ONLY(i), i);
        SEEN }
    od
}

/* r0 leads the first epoch, and all are in its set. A trace begins where that epoch is over. */
init {
    d_step {
        stored.epoch = 1; stored.leader = 0; stored.in_sync = ALL; stored.heir = NOBODY;
        for (least : 0 .. REPLICAS - 1) {
            for (k : 0 .. EPOCHS) { r[least].begin[k] = NOWHERE }
            r[least].role = UNKNOWN; r[least].patience = PATIENCE;
#ifdef TRACE
            r[least].begin[1] = 0; r[least].last_epoch = 1
#endif
        }
#ifdef TRACE
        led_by[1] = 1;
#else
        copy_record(r[0].known, stored); r[0].is_fresh = true; r[0].lease = LEASE;
        lead(0);
#endif
        least = 0; k = 0
    }
#ifdef TRACE
    run next_step();
#endif
    atomic {
        run world();
        for (least : 0 .. REPLICAS - 1) {
            run replica(least);
#if FORCES > 0
            run operator(least);
#endif
            for (agreed : 0 .. REPLICAS - 1) {
                if
                :: least != agreed -> run link(least, agreed)
                :: else
                fi
            }
        }
        least = 0; agreed = 0
    }
}
