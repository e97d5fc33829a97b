/* What moves messages on a shard, as state in the log: services/following/state_topic, consumer_svc and schedule_svc, for Spin
   (docs/adr/0184).

   A service follows the log. What it has done is a record of the log: each move is one request, which has the copy of the message and
   the change that says so. Its memory is changed first, its writer appends the changes in their order, and who asked is answered then.
   A life of the service begins with an epoch, which keeps requests of earlier lives out, and reads its state from the log: the newest
   whole full state, and the changes behind it. Read `life` first (state_follower.py, state_log.py, state_writer.py), then `message` (a
   consumer group: pop.py, acks.py, expirer.py), `timer` (schedule_svc/timers), `half` (schedule_svc/transactions) and `world`, then what
   must hold: the assertions in `land`, `answer`, `read` and RETAIN, and `judge`.

   A step never has to happen, but a state in which no step can happen is wrong unless all is done: nothing is skipped.

   What is one step here takes time in the code. Each of these loses nothing:
   - A request lands in the log and is answered. An answer that is lost is a kill before it: then the request is under way, and may land
     until the fence keeps it out, or never. So is an append whose outcome is not known: it ends the life.
   - A change is applied to memory and submitted, under the lock. Requests are one submission each: several in one are some that land
     directly behind each other.
   - A pop that passes messages and hands one out, or several, is one change. Here each is one, and a kill may lie between them.
   - The end of a lease: from `_begin` to `_move` an acknowledgement comes too late, as one that comes behind it. Renewals and changes of
     the invisible time only say when a lease ends, and here that may be at any time. So may timers be due, and producers be asked.
   - A message arrives where it is followed. A follower that is late is one that takes its next step later.
   - A full state is made, its first record lands, and its last one. What is in between is neither.
   - Retention removes all that it may. Less is less.

   What is not covered: several messages of a message group in one answer, what a program gave back, pulls, resets,
   messages that retention takes from a group (they are counted), delay levels (timers whose ends are a position), what a broker
   does with the store, the place of op records in a full state (all that the log has are read).

   The bounds are macros, with their defaults below. BROKEN_... breaks a rule each, and the check finds it (test_moving.py).
   SEE(what, who, whom, number) names a step for traces of the real service (traces.py); in a search it is true. */

#ifndef MESSAGES            /* that are sent to the topic of the group */
#define MESSAGES 0
#endif
#ifndef RETRIES             /* records of the retry topic */
#define RETRIES 0
#endif
#ifndef ORDERED             /* the group: two messages are a message group */
#define ORDERED 0
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef GIVE_UPS            /* messages that a program makes dead letters */
#define GIVE_UPS 0
#endif
#ifndef TIMERS
#define TIMERS 0
#endif
#ifndef ROLLS               /* timers that are stored again */
#define ROLLS 0
#endif
#ifndef SAVES               /* of the files of timers */
#define SAVES 0
#endif
#ifndef LOSSES              /* of these files */
#define LOSSES 0
#endif
#ifndef HALVES              /* half messages of transactions */
#define HALVES 0
#endif
#ifndef CHECKS              /* of a half message, before it is given up */
#define CHECKS 1
#endif
#ifndef KILLS               /* of the service; also a life that ends itself, or hangs */
#define KILLS 1
#endif
#ifndef CUTS                /* power cuts: what was not flushed is gone */
#define CUTS 0
#endif
#ifndef FULLS               /* full states */
#define FULLS 0
#endif
#ifndef REPORTS             /* to retention */
#define REPORTS 0
#endif
#ifndef PENDING             /* submissions that are not in the log yet */
#define PENDING 2
#endif
#ifndef LENGTH              /* requests in the log; an assertion says that it is enough */
#define LENGTH 16
#endif
#ifndef WIDE                /* of arrays by position: more than there can be */
#define WIDE 5
#endif
#ifndef SET
#define SET byte
#endif

#define NONE 255
#define ONLY(one) (1 << (one))
#define HAS(set, one) (((set) >> (one)) & 1)
#define BELOW(one) (ONLY(one) - 1)
#define MATES(p) (3 << ((p) / 2 * 2))       /* the positions of a message group */

#ifdef TRACE
#include "trace.pml"
#else
#define SEE(what, who, whom, number) true
#define SEEN k = 0; j = 0
#endif

mtype = {
    DOWN, READY, SERVING,
    SENT, HANDED, PASSED, ENDED, RETURNED, RETRIED, DEAD, PUT_ASIDE,    /* a group's; the last: its program gave it up */
    TIMED, DELIVERED, RECALLED, ROLLED,                 /* of timers */
    HALF, COMMITTED, ROLLED_BACK, RENEWED, GIVEN_UP,    /* of transactions */
    MOVED, DONE,                                        /* only where a move is broken into two: the change without the copy */
    FULL_BEGUN, FULL_ENDED
};

/* Whatever is appended as one request. */
typedef Request {
    mtype kind;         /* 0: there is none */
    byte on             /* a position; of a full state which one */
}

/* queue_state.py, schedule_state.py: what changes add up to. Positions of the topic begin at 0, those of the retry topic at MESSAGES. */
typedef Known {
    byte next;          /* the topic's first position that was never handed out */
    byte retry_next;    /* the retry topic's */
    SET leased;
    SET waiting;
    SET moved;
    byte had[WIDE];     /* deliveries from here */
    SET done            /* timers that wait no longer */
}

/* The log. What retention removed stays here for `truth`: nobody reads what is before `first`. */
Request log[LENGTH];
byte end;
byte first;
byte flushed;           /* Reput shows what is before it */
byte safe;              /* retention may remove what is before it */
byte fence;             /* the largest epoch that a life has begun with */
byte whole_place[FULLS + 1];

/* The queues, which are derived from the log. */
byte sent;
byte retried;
byte root[WIDE];        /* the message that was sent, of which this position is a copy */
byte before[WIDE];      /* attempts that the record names: reconsume_times */
byte timers_sent;
byte timed;             /* positions of the timer topic */
byte timer_of[WIDE];
byte timer_place[WIDE];
byte halves_sent;
byte halves;            /* positions of the half topic */
byte half_of[WIDE];
byte half_place[WIDE];
byte checks[WIDE];
SET ops;                /* half messages that an op record names */

/* What the log says from its first record on. */
Known truth;
SET copied;             /* positions that a copy names as its source */
SET finished;           /* messages that were acknowledged, or are dead letters */
SET delivered;          /* timers that are in their topic */
SET taken_back;
SET over;               /* transactions that are */

/* What clients know. */
byte handle[WIDE];      /* the newest delivery from a position that was answered */
SET acked;              /* messages whose acknowledgement was answered */
SET recalled;           /* timers whose recall was */

/* A life of the service. */
mtype role = DOWN;
byte epoch;
Known mem;
Request queue[PENDING];
byte queued;
bool has_state;
byte state_offset;      /* where the state that counts begins in the log */
byte report_needed;     /* a report to retention that waits for a flush */
byte report_end = NONE;
SET index;              /* timers that wait, as far as this life knows */
byte timers_known;
SET waits;              /* half messages that do */
SET claims;
Request verdicts[2];
byte verdict_count;

/* What is under way of an earlier life. */
Request stray;
byte stray_epoch;
Request stray_verdict;
byte stray_verdict_epoch;

/* Full states, as their records say. */
Known whole[FULLS + 1];
byte whole_half[FULLS + 1];  /* the first half message that waits */
byte fulls;

/* The files of timers: those that count, and new ones that do not yet. */
SET file_set;
byte file_next;
bool has_new;
SET new_set;
byte new_next;
byte new_wait;          /* submissions that are to land first */
byte new_after;         /* and then to be shown */

byte kills = KILLS;
byte cuts = CUTS;
byte rolls = ROLLS;
byte saves = SAVES;
byte losses = LOSSES;
byte reports = REPORTS;
byte give_ups = GIVE_UPS;

/* Scratch of one step; 0 between steps. */
byte k;
byte j;
byte from;
byte which;
byte least;
SET found;

/* --- states */

inline clear_state(s) {
    s.next = 0; s.retry_next = MESSAGES; s.leased = 0; s.waiting = 0; s.moved = 0; s.done = 0;
    for (j : 0 .. WIDE - 1) { s.had[j] = 0 }
}

inline copy_state(to, source) {
    to.next = source.next; to.retry_next = source.retry_next; to.leased = source.leased; to.waiting = source.waiting;
    to.moved = source.moved; to.done = source.done;
    for (j : 0 .. WIDE - 1) { to.had[j] = source.had[j] }
}

inline assert_same(one, other) {
    assert(one.next == other.next && one.retry_next == other.retry_next && one.leased == other.leased);
    assert(one.waiting == other.waiting && one.moved == other.moved && one.done == other.done);
    for (j : 0 .. WIDE - 1) { assert(one.had[j] == other.had[j]) }
}

#ifdef BROKEN_APART
#define IS_MOVE(kind) (kind == MOVED)
#define IS_END_OF_TIMER(kind) (kind == DONE || kind == RECALLED || kind == ROLLED)
#else
#define IS_MOVE(kind) (kind == RETRIED || kind == DEAD)
#define IS_END_OF_TIMER(kind) (kind == DELIVERED || kind == RECALLED || kind == ROLLED)
#endif

/* QueueState.apply, and that of timers. */
inline apply(s, one_kind, p) {
    if
    :: one_kind == HANDED ->
        s.had[p]++; s.leased = s.leased | ONLY(p); s.waiting = s.waiting & ~ONLY(p);
        if
        :: p < MESSAGES && p >= s.next -> s.next = p + 1
        :: p >= MESSAGES && p >= s.retry_next -> s.retry_next = p + 1
        :: else
        fi
    :: one_kind == PASSED ->
        s.next = p + 1;
#ifndef BROKEN_PASSES_SILENTLY
        s.waiting = s.waiting | ONLY(p);
#endif
        skip
    :: one_kind == ENDED || one_kind == PUT_ASIDE -> s.leased = s.leased & ~ONLY(p); s.waiting = s.waiting & ~ONLY(p)
    :: one_kind == RETURNED -> s.leased = s.leased & ~ONLY(p); s.waiting = s.waiting | ONLY(p)
    :: IS_MOVE(one_kind) ->
        s.leased = s.leased & ~ONLY(p); s.waiting = s.waiting & ~ONLY(p);
#ifndef BROKEN_FORGETS_MOVED
        s.moved = s.moved | ONLY(p);
#endif
        skip
    :: IS_END_OF_TIMER(one_kind) -> s.done = s.done | ONLY(p)
    :: else
    fi
}

/* --- the log */

#define IS_OP(kind) (kind == COMMITTED || kind == ROLLED_BACK || kind == RENEWED || kind == GIVEN_UP)
#define IS_NO_CHANGE(kind) (kind == SENT || kind == TIMED || kind == HALF || IS_OP(kind))
/* A power cut may take it, although it was answered: it was not flushed. */
#define MAY_LOSE(kind) (kind == HANDED || kind == PASSED || kind == DELIVERED || kind == ROLLED || kind == SENT || \
    kind == TIMED || kind == HALF)

/* What follows from a record. */
inline note(one_kind, p, place) {
    apply(truth, one_kind, p);
    if
    :: one_kind == SENT -> sent++
    :: one_kind == ENDED -> finished = finished | ONLY(root[p])
    :: one_kind == RETRIED ->
        copied = copied | ONLY(p);
        root[MESSAGES + retried] = root[p]; before[MESSAGES + retried] = before[p] + truth.had[p]; retried++
    :: one_kind == DEAD || one_kind == PUT_ASIDE -> copied = copied | ONLY(p); finished = finished | ONLY(root[p])
    :: one_kind == TIMED -> timer_of[timed] = p; timer_place[timed] = place; timed++; timers_sent++
    :: one_kind == ROLLED -> timer_of[timed] = timer_of[p]; timer_place[timed] = place; timed++
    :: one_kind == DELIVERED -> delivered = delivered | ONLY(timer_of[p])
    :: one_kind == RECALLED -> taken_back = taken_back | ONLY(timer_of[p])
    :: one_kind == HALF -> half_of[halves] = p; half_place[halves] = place; checks[halves] = 0; halves++; halves_sent++
    :: one_kind == RENEWED ->
        ops = ops | ONLY(p);
        half_of[halves] = half_of[p]; half_place[halves] = place; checks[halves] = checks[p] + 1; halves++
    :: one_kind == COMMITTED || one_kind == ROLLED_BACK || one_kind == GIVEN_UP ->
        ops = ops | ONLY(p); over = over | ONLY(half_of[p])
    :: one_kind == FULL_BEGUN -> whole_place[p] = place
    :: else
    fi
}

/* Each move is in the log once, and is none of what is done. */
inline land(one_kind, p) {
    assert(end < LENGTH);
    if
    :: one_kind == RETRIED || one_kind == DEAD || one_kind == PUT_ASIDE -> assert(!HAS(copied, p)); assert(!HAS(acked, root[p]))
    :: one_kind == DELIVERED -> assert(!HAS(delivered, timer_of[p])); assert(!HAS(recalled, timer_of[p]))
    :: one_kind == RECALLED -> assert(!HAS(delivered, timer_of[p]))
    :: IS_OP(one_kind) -> assert(!HAS(ops, p)); assert(!HAS(over, half_of[p]))
    :: else
    fi;
    log[end].kind = one_kind; log[end].on = p;
    note(one_kind, p, end);
    end++;
    if
    :: CUTS == 0 || !MAY_LOSE(one_kind) -> flushed = end
    :: else
    fi;
    if
    :: (one_kind == HALF || one_kind == RENEWED) && role == SERVING -> waits = waits | ONLY(halves - 1)
    :: else
    fi
}

/* What clients are told when a request is in the log. */
inline answer(one_kind, p) {
    if
    :: one_kind == HANDED ->
        handle[p] = truth.had[p];
        assert(!HAS(acked, root[p]));
#if ORDERED
        assert((BELOW(p) & MATES(p) & ~finished) == 0)
#endif
    :: one_kind == ENDED -> acked = acked | ONLY(root[p])
    :: one_kind == RECALLED -> recalled = recalled | ONLY(timer_of[p])
    :: else
    fi
}

/* --- a life */

#ifdef BROKEN_READS_FIRST
#define BEGIN_AT READY
#define BEGIN_TO SERVING
#define READ_AT DOWN
#define READ_TO READY
#else
#define BEGIN_AT DOWN
#define BEGIN_TO READY
#define READ_AT READY
#define READ_TO SERVING
#endif
#ifdef BROKEN_APART
#define ROOM (queued + 1 < PENDING)
#else
#define ROOM (queued < PENDING)
#endif
#define MAY_CHANGE (role == SERVING && ROOM)
#ifdef TRACE
#define AT_BEGIN (what == BEGIN_SEEN)
#define IS_QUIET (queued == 0)          /* a trace has what lands, in that order */
#define MAY_WRITE_FULL true             /* groups are state, too, and are not in the model */
#else
#define AT_BEGIN true
#define IS_QUIET true
#define MAY_WRITE_FULL (has_state || halves > 0)
#endif

inline put(one_kind, p) {
    queue[queued].kind = one_kind; queue[queued].on = p; queued++
}

/* Life.change: memory first, then the writer. */
inline submit(one_kind, p) {
    apply(mem, one_kind, p);
    put(one_kind, p);
    has_state = true
}

inline submit_move(one_kind, p) {
    submit(one_kind, p);
#ifdef BROKEN_APART
    if
    :: one_kind == DELIVERED -> submit(DONE, p)
    :: else -> submit(MOVED, p)
    fi
#endif
}

inline shift() {
    queued--;
    for (j : 0 .. PENDING - 2) {
        queue[j].kind = queue[j + 1].kind; queue[j].on = queue[j + 1].on
    }
    queue[PENDING - 1].kind = 0; queue[PENDING - 1].on = 0
}

inline forget_life() {
    role = DOWN; epoch = 0; clear_state(mem); mem.retry_next = 0;
    for (j : 0 .. PENDING - 1) { queue[j].kind = 0; queue[j].on = 0}
    queued = 0; has_state = false; state_offset = 0; report_needed = 0; report_end = NONE;
    index = 0; timers_known = 0; waits = 0; claims = 0; verdict_count = 0;
    verdicts[0].kind = 0; verdicts[0].on = 0; verdicts[1].kind = 0; verdicts[1].on = 0;
    has_new = false; new_set = 0; new_next = 0; new_wait = 0; new_after = 0
}

/* The newest whole full state that the log has. */
inline find_start() {
    which = NONE; from = first; k = end;
    do
    :: k > first && which == NONE ->
        k--;
        if
        :: log[k].kind == FULL_ENDED && whole_place[log[k].on] >= first -> which = log[k].on; from = k + 1
#ifdef BROKEN_TRUSTS_UNFINISHED
        :: log[k].kind == FULL_BEGUN && from <= k -> from = k + 1; break
#endif
        :: else
        fi
    :: else -> break
    od
}

/* load_state, TimerIndex.load, Loaded: a full state and what is behind it are what all records say. */
inline read_state() {
    find_start();
    state_offset = NONE; has_state = false;
    if
    :: which == NONE -> clear_state(mem)
    :: else -> copy_state(mem, whole[which]); state_offset = whole_place[which]; has_state = true
    fi;
    for (k : from .. end - 1) {
        apply(mem, log[k].kind, log[k].on);
        if
        :: IS_NO_CHANGE(log[k].kind)
        :: else ->
            has_state = true;
            if
            :: state_offset == NONE -> state_offset = k
            :: else
            fi
        fi
    }
    assert_same(mem, truth);
    /* The timers of the files, and those that are behind them in their topic. */
    found = 0;
    for (k : file_next .. timed - 1) {
        if
        :: timer_place[k] >= first -> found = found | ONLY(k)
        :: else
        fi
    }
    index = (file_set | found) & ~mem.done; timers_known = timed;
    assert(index == (BELOW(timed) & ~truth.done));
    /* The half messages that no op record names. */
    waits = 0;
    for (k : 0 .. halves - 1) {
        if
        :: half_place[k] >= first && (which == NONE || k >= whole_half[which]) -> waits = waits | ONLY(k)
        :: else
        fi
    }
    for (k : first .. end - 1) {
        if
        :: IS_OP(log[k].kind) -> waits = waits & ~ONLY(log[k].on)
        :: else
        fi
    }
    assert(waits == (BELOW(halves) & ~ops));
    from = 0; which = 0; found = 0
}

/* The oldest record that this life still needs: StateFollower._report_needed and the kinds' needed_offset. What is under way waits
   still: so `truth.done` says what is needed, and not memory. */
inline find_needed() {
    least = (has_state && state_offset < flushed -> state_offset : flushed);
#ifndef BROKEN_RETAINS_BESIDES
    for (k : 0 .. timed - 1) {
        if
#ifdef BROKEN_RETAINS_UNDER_WAY
        :: !HAS(mem.done, k) && timer_place[k] < least -> least = timer_place[k]
#else
        :: !HAS(truth.done, k) && timer_place[k] < least -> least = timer_place[k]
#endif
        :: else
        fi
    }
    for (k : 0 .. halves - 1) {
        if
        :: HAS(waits, k) && half_place[k] < least -> least = half_place[k]
        :: else
        fi
    }
#endif
}

/* TransactionsPassed.half_offset. */
inline find_first_half() {
    least = halves;
    for (k : 0 .. halves - 1) {
        if
#ifdef BROKEN_PASSES_CLAIMED
        :: HAS(waits & ~claims, k) && k < least -> least = k
#else
        :: HAS(waits, k) && k < least -> least = k
#endif
        :: else
        fi
    }
}

proctype life() {
endless:
    do
    /* StateLog.begin_life: with an epoch that none has begun with (FollowerFence). */
    :: d_step { SEE(BEGIN, 0, 0, 0) && role == BEGIN_AT ->
#ifdef BROKEN_EQUAL_EPOCHS
        epoch = (fence > 0 -> fence : 1);
#else
        epoch = fence + 1;
#endif
        fence = epoch; role = BEGIN_TO;
        SEEN }
    /* Then it reads, once the queues have all that the log has. */
    :: d_step { role == READ_AT && flushed == end -> read_state(); role = READ_TO; k = 0; j = 0 }

    /* The writer's next request lands and is answered. */
    :: d_step { role == SERVING && queued > 0 ->
        land(queue[0].kind, queue[0].on);
        answer(queue[0].kind, queue[0].on);
        if
        :: queue[0].kind == FULL_BEGUN ->
#ifdef BROKEN_STATE_EARLY
            state_offset = whole_place[queue[0].on];
#endif
            queue[0].kind = FULL_ENDED
        :: else ->
            if
            :: queue[0].kind == FULL_ENDED -> state_offset = whole_place[queue[0].on]
            :: queue[0].kind != FULL_ENDED && state_offset == NONE -> state_offset = end - 1
            :: else
            fi;
            shift();
            if
            :: new_wait > 0 ->
                new_wait--;
                new_after = (new_wait == 0 -> end : 0)
            :: else
            fi
        fi;
#ifndef ONLY_PROMISES
        if
        :: queued == 0 -> assert_same(mem, truth); assert(index == (BELOW(timers_known) & ~truth.done))
        :: else
        fi;
#endif
        k = 0; j = 0 }
    /* The writer of verdicts (EndWriter) is another one: memory is changed when it is answered. */
    :: d_step { role == SERVING && verdict_count > 0 ->
        land(verdicts[0].kind, verdicts[0].on);
        waits = waits & ~ONLY(verdicts[0].on); claims = claims & ~ONLY(verdicts[0].on);
        verdicts[0].kind = verdicts[1].kind; verdicts[0].on = verdicts[1].on; verdicts[1].kind = 0; verdicts[1].on = 0;
        verdict_count--;
#ifndef ONLY_PROMISES
        assert(waits == (BELOW(halves) & ~ops));
#endif
        k = 0; j = 0 }

    /* It is killed, ends itself because an append was not answered, or hangs: what was under way may land. */
    :: d_step { AT_BEGIN && kills > 0 && role != DOWN ->
        kills--;
        if
        :: queued > 0 && stray.kind == 0 ->
            stray.kind = queue[0].kind; stray.on = queue[0].on; stray_epoch = epoch
        :: else
        fi;
        if
        :: verdict_count > 0 && stray_verdict.kind == 0 ->
            stray_verdict.kind = verdicts[0].kind; stray_verdict.on = verdicts[0].on; stray_verdict_epoch = epoch
        :: else
        fi;
        forget_life();
        k = 0; j = 0 }

#if FULLS > 0
    /* The full state as memory is now; it is written in its turn. */
    :: d_step { SEE(FULL, 0, 0, 0) && IS_QUIET && MAY_CHANGE && MAY_WRITE_FULL && fulls < FULLS ->
        has_state = true;
        copy_state(whole[fulls], mem);
        find_first_half(); whole_half[fulls] = least; least = 0;
#ifdef BROKEN_FULL_FIRST
        for (k : 0 .. PENDING - 2) {
            j = PENDING - 1 - k;
            queue[j].kind = queue[j - 1].kind; queue[j].on = queue[j - 1].on
        }
        queue[0].kind = FULL_BEGUN; queue[0].on = fulls; queued++;
#else
        put(FULL_BEGUN, fulls);
#endif
        fulls++;
        SEEN }
#endif

    /* Retention is told what is not needed, when Reput has shown all that the log had when that was found. */
    :: d_step { role == SERVING && report_end == NONE && reports > 0 ->
        reports--;
        find_needed();
        if
#ifdef BROKEN_REPORTS_EARLY
        :: least > safe -> safe = least
#else
        :: least > safe && flushed == end -> safe = least
        :: least > safe && flushed < end -> report_needed = least; report_end = end
#endif
        :: else
        fi;
        least = 0; k = 0 }
    :: d_step { report_end != NONE && flushed >= report_end -> safe = report_needed; report_needed = 0; report_end = NONE }

#if SAVES > 0
    /* The files of timers are written anew. They count when the log cannot lose what they leave out. */
    :: d_step { role == SERVING && saves > 0 && !has_new ->
        saves--;
#ifdef BROKEN_FILES_EARLY
        file_set = index; file_next = timers_known;
#else
        has_new = true; new_set = index; new_next = timers_known; new_wait = queued; new_after = (queued == 0 -> end : 0);
#endif
        k = 0 }
    :: d_step { has_new && new_wait == 0 && flushed >= new_after ->
        file_set = new_set; file_next = new_next;
        has_new = false; new_set = 0; new_next = 0; new_after = 0 }
#endif
    od
}

/* --- a position of the topic or of the retry topic, as the group has it */

#define IS_THERE(p) (p < MESSAGES -> p < sent : p < MESSAGES + retried)
#ifdef BROKEN_OVERTAKES
#define IS_HELD(p) ((mem.waiting & MATES(p) & BELOW(p)) != 0)
#else
#define IS_HELD(p) ((mem.leased & MATES(p) & ~ONLY(p)) != 0 || (mem.waiting & MATES(p) & BELOW(p)) != 0)
#endif
#define IS_NEXT(p) (p < MESSAGES -> p == mem.next : p == mem.retry_next)
#define IS_FRESH(p) (p < MESSAGES -> p >= mem.next : p >= mem.retry_next)
#if ORDERED
#define MAY_HAND(p) (!IS_HELD(p) && (HAS(mem.waiting, p) || IS_NEXT(p)))
#else
#define MAY_HAND(p) IS_NEXT(p)
#endif
#define HAD_ALL(p) (before[p] + mem.had[p] >= ATTEMPTS)
#define IS_CONSUMED(p) (!IS_FRESH(p) && !HAS(mem.leased, p) && !HAS(mem.waiting, p) && !HAS(mem.moved, p))

proctype message(byte p) {
endless:
    do
    /* A pop gets it. */
    :: d_step { SEE(HAND, p, 0, mem.had[p] + 1) && IS_QUIET && MAY_CHANGE && IS_THERE(p) && MAY_HAND(p) ->
        submit(HANDED, p);
        SEEN }
#if ORDERED
    /* A pop passes it, because its message group is in flight: it waits. */
    :: d_step { SEE(PASS, p, 0, 0) && IS_QUIET && MAY_CHANGE && IS_THERE(p) && IS_NEXT(p) && IS_HELD(p) ->
        submit(PASSED, p);
        SEEN }
#endif
    /* It is acknowledged by the delivery that has it. */
    :: d_step { SEE(ACK, p, 0, 0) && IS_QUIET && MAY_CHANGE && HAS(mem.leased, p) && handle[p] == mem.had[p] ->
        submit(ENDED, p);
#ifdef BROKEN_ANSWERS_EARLY
        acked = acked | ONLY(root[p]);
#endif
        SEEN }
    /* It was, and is acknowledged again: OK, when what says so is in the log. */
#ifdef BROKEN_ANSWERS_EARLY
    :: d_step { role == SERVING && handle[p] > 0 && IS_CONSUMED(p) && !HAS(acked, root[p]) ->
        acked = acked | ONLY(root[p]); k = 0 }
#else
    :: d_step { role == SERVING && queued == 0 && handle[p] > 0 && IS_CONSUMED(p) && !HAS(acked, root[p]) ->
        acked = acked | ONLY(root[p]); k = 0 }
#endif
    /* Its program gives it up. */
    :: d_step { SEE(GIVE_UP, p, 0, 0) && IS_QUIET && MAY_CHANGE && HAS(mem.leased, p) && handle[p] == mem.had[p] && give_ups > 0 ->
        give_ups--;
        submit(PUT_ASIDE, p);
        SEEN }
    /* Its lease ends: it waits in its place, or moves to the retry topic, or to the dead letters. */
    :: d_step { SEE(EXPIRE, p, (HAD_ALL(p) -> 1 : 0), 0) && IS_QUIET && MAY_CHANGE && HAS(mem.leased, p) ->
        if
        :: HAD_ALL(p) -> submit_move(DEAD, p)
#if ORDERED
        :: else -> submit(RETURNED, p)
#else
        :: else -> submit_move(RETRIED, p)
#endif
        fi;
        SEEN }
#ifdef TRACE
    /* Clients are told what is in the log. */
    :: d_step { SEE(GOT, p, 0, number) && handle[p] > 0 && before[p] + handle[p] >= number -> SEEN }
    :: d_step { SEE(TOLD, p, 0, 0) && handle[p] > 0 && !HAS(truth.leased | truth.waiting | truth.moved, p) -> SEEN }
#ifdef BROKEN_APART
    :: d_step { SEE(COPIED, p, 0, 0) && HAS(mem.leased, p) -> SEEN }
#endif
#endif
    od
}

/* --- a position of the timer topic */

#ifdef BROKEN_RECALLS_UNDER_WAY
#define MAY_RECALL(p) (p < timers_known && !HAS(recalled | taken_back, timer_of[p]) && !HAS(truth.done, p))
#else
#define MAY_RECALL(p) HAS(index, p)
#endif

proctype timer(byte p) {
endless:
    do
    /* The reader of the topic has it: it is shown by Reput. */
    :: d_step { role == SERVING && timers_known == p && p < timed && timer_place[p] < flushed ->
        timers_known = p + 1; index = index | ONLY(p); k = 0 }
    /* It is due. Its record is read and appended to its topic. */
    :: d_step { SEE(DELIVER, p, 0, 0) && IS_QUIET && MAY_CHANGE && HAS(index, p) ->
        assert(timer_place[p] >= first);
        index = index & ~ONLY(p);
        submit_move(DELIVERED, p);
        SEEN }
    /* It is recalled. */
    :: d_step { SEE(RECALL, p, 0, 0) && IS_QUIET && MAY_CHANGE && MAY_RECALL(p) ->
        index = index & ~ONLY(p);
        submit(RECALLED, p);
        SEEN }
#if ROLLS > 0
    /* It is stored again, because retention comes near. */
    :: d_step { MAY_CHANGE && HAS(index, p) && rolls > 0 ->
        assert(timer_place[p] >= first);
        rolls--; index = index & ~ONLY(p);
        submit(ROLLED, p);
        k = 0; j = 0 }
#endif
    od
}

/* --- a position of the half topic */

#ifdef BROKEN_NO_CLAIM
#define MAY_END(p) (role == SERVING && verdict_count < 2 && HAS(waits, p))
#else
#define MAY_END(p) (role == SERVING && verdict_count < 2 && HAS(waits, p) && !HAS(claims, p))
#endif

inline end_half(one_kind, p) {
    assert(half_place[p] >= first);
    claims = claims | ONLY(p);
    verdicts[verdict_count].kind = one_kind; verdicts[verdict_count].on = p; verdict_count++
}

proctype half(byte p) {
endless:
    do
    :: d_step { MAY_END(p) -> end_half(COMMITTED, p) }
    :: d_step { MAY_END(p) -> end_half(ROLLED_BACK, p) }
    /* Its producer is asked: it is stored again with another check. */
    :: d_step { MAY_END(p) && checks[p] < CHECKS -> end_half(RENEWED, p) }
    :: d_step { MAY_END(p) && checks[p] >= CHECKS -> end_half(GIVEN_UP, p) }
    od
}

/* --- the rest of the world */

/* What was not flushed is gone, and all processes begin anew. */
inline cut_power(new_end) {
    cuts--;
    from = new_end;
    for (k : from .. LENGTH - 1) { log[k].kind = 0; log[k].on = 0}
    forget_life();
    stray.kind = 0; stray.on = 0; stray_epoch = 0;
    stray_verdict.kind = 0; stray_verdict.on = 0; stray_verdict_epoch = 0;
    sent = 0; retried = 0; timers_sent = 0; timed = 0; halves_sent = 0; halves = 0;
    ops = 0; copied = 0; finished = 0; delivered = 0; taken_back = 0; over = 0;
    clear_state(truth);
    end = 0;
    for (k : 0 .. from - 1) {
        note(log[k].kind, log[k].on, k);
        end++
    }
    flushed = end;
    for (k : 0 .. WIDE - 1) {
        if
        :: handle[k] > truth.had[k] -> handle[k] = 0      /* the serial of a delivery tells it from the next one */
        :: else
        fi
    }
    from = 0; k = 0; j = 0
}

/* Nothing that waits is removed, and no state that a life would read. */
inline assert_retained() {
    for (k : 0 .. timed - 1) { assert(HAS(truth.done, k) || timer_place[k] >= first) }
    for (k : 0 .. halves - 1) { assert(HAS(ops, k) || half_place[k] >= first) }
    find_start();
    if
    :: which == NONE ->
        for (k : 0 .. first - 1) {
            assert(IS_NO_CHANGE(log[k].kind) || log[k].kind == FULL_BEGUN)
        }
    :: else
    fi;
    from = 0; which = 0; k = 0
}

proctype world() {
endless:
    do
#if MESSAGES > 0
    :: d_step { SEE(SEND, sent, 0, 0) && IS_QUIET && sent < MESSAGES -> land(SENT, sent); SEEN }
#endif
#if TIMERS > 0
    :: d_step { SEE(TIME, timers_sent, 0, 0) && IS_QUIET && timers_sent < TIMERS -> land(TIMED, timers_sent); SEEN }
#endif
#if HALVES > 0
    :: d_step { halves_sent < HALVES -> land(HALF, halves_sent) }
#endif
    /* What an earlier life has under way arrives. */
#ifdef BROKEN_NO_FENCE
    :: d_step { stray.kind != 0 ->
#else
    :: d_step { stray.kind != 0 && stray_epoch >= fence ->
#endif
        land(stray.kind, stray.on);
        stray.kind = 0; stray.on = 0; stray_epoch = 0; k = 0; j = 0 }
#ifdef BROKEN_NO_FENCE
    :: d_step { stray_verdict.kind != 0 ->
#else
    :: d_step { stray_verdict.kind != 0 && stray_verdict_epoch >= fence ->
#endif
        land(stray_verdict.kind, stray_verdict.on);
        stray_verdict.kind = 0; stray_verdict.on = 0; stray_verdict_epoch = 0; k = 0; j = 0 }
#ifndef BROKEN_NO_FENCE
    /* Or it is refused: FollowerFencedError. */
    :: d_step { stray.kind != 0 && stray_epoch < fence -> stray.kind = 0; stray.on = 0; stray_epoch = 0 }
    :: d_step { stray_verdict.kind != 0 && stray_verdict_epoch < fence ->
        stray_verdict.kind = 0; stray_verdict.on = 0; stray_verdict_epoch = 0 }
#endif
    :: d_step { first < safe -> first = safe; assert_retained() }
#if CUTS > 0
    :: d_step { flushed < end -> flushed = end }
    :: d_step { cuts > 0 -> cut_power(flushed) }
    :: d_step { cuts > 0 && end > flushed + 1 -> cut_power(end - 1) }
#endif
#if LOSSES > 0
    :: d_step { losses > 0 && file_next > 0 -> losses--; file_set = 0; file_next = 0 }
#endif
    od
}

/* In the end nothing is left: each message is acknowledged or a dead letter, each timer delivered or taken back, each transaction over. */
proctype judge() {
    (finished == BELOW(MESSAGES) && (delivered | taken_back) == BELOW(TIMERS) && over == BELOW(HALVES))
}

init {
    d_step {
        clear_state(truth);
        for (k : 0 .. WIDE - 1) { root[k] = (k < MESSAGES -> k : 0) }
        k = 0; j = 0
    }
    atomic {
#ifdef TRACE
        run next_step();
#else
        run judge();
#endif
        run life(); run world();
#if MESSAGES > 0
        for (k : 0 .. MESSAGES + RETRIES - 1) { run message(k) }
#endif
#if TIMERS > 0
        for (k : 0 .. TIMERS + ROLLS - 1) { run timer(k) }
#endif
#if HALVES > 0
        for (k : 0 .. HALVES * (CHECKS + 1) - 1) { run half(k) }
#endif
        k = 0
    }
}
