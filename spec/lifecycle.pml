/*
 * The life of one durable call, to be searched exhaustively by Spin (DURABLE, CANCEL and IDEM of
 * ringline.md).
 *
 *   make model            every check and every variant; spec/model/README.md explains both
 *
 * One relay, two listener instances with a journal each, one caller, and faults that are counted out: the
 * relay's crash, a listener's crash, a broken connection that its two ends notice at different moments. When
 * they are used up the system must come to rest by itself. Every rule that can be switched off by -D is marked
 * with the name of its switch; with any of them the search must find an error.
 *
 * Each step is a d_step: what it changes on disk is committed, and only then are its messages on their way. A
 * crash after the commit and before the words is a crash with the words lost, which the model has anyway.
 */

/* ---- bounds; spec/model/check.py sets them ------------------------------------------------------------ */
#ifndef RELAY_CRASHES
#define RELAY_CRASHES 1
#endif
#ifndef LISTENER_CRASHES
#define LISTENER_CRASHES 1
#endif
#ifndef BREAKS
#define BREAKS 1
#endif
#ifndef CANCELS
#define CANCELS 1
#endif
#ifndef PARK_AT
#define PARK_AT 2 /* three in the protocol */
#endif
/* EXECUTE_BY: the end of the call's time may come at any moment; without it, never.
 * REVOKE: authority may be lost.  REPLAY: the owner may replay a parked call once.
 * GONE: a listener that crashed may stay away for ever (its journal is lost: it returns as another instance). */

#define N 2
#define LEASES 15 /* ids in use at one moment; one that nobody and no message holds any more is used again */
#define ROOM 12
#define CROWDED 7 /* messages on a connection: hand-outs wait, as for a slow reader */

/* ---- messages: a kind and a lease --------------------------------------------------------------------- */
#define INCOMING 0 /* relay to listener */
#define GRANT 16
#define CANCEL 32
#define REFUSED 48
#define ACCEPTED 64 /* listener to relay */
#define STARTED 80
#define COMPLETED 96
#define FAILED 112 /* a refusal: nothing was run */
#define INDETERMINATE 128
#define CANCELLED 144
#define NOT_CANCELLED 160

/* ---- final states, the words of the record ------------------------------------------------------------ */
#define NO_END 0
#define S_COMPLETED 1
#define S_FAILED 2
#define S_INDETERMINATE 3
#define S_CANCELED 4
#define S_EXPIRED 5
#define S_DELIVERY_FAILED 6
#define S_REVOKED 7

/* ---- the relay: on disk ------------------------------------------------------------------------------- */
bool admitted, started, flag, rvk;
byte bound, attempts, ending;
bool returnable[N]; /* a counted loss whose process may still come back: the attempt is then taken back */
/* in memory */
byte lease, holder;
bool accepted, asked;
bool r_up[N]; /* the relay believes that this connection is alive */
#define PARKED (attempts >= PARK_AT && !started && ending == NO_END)
#define OPEN (admitted && ending == NO_END)

/* ---- a listener instance: its journal ------------------------------------------------------------------ */
#define NONE 0
#define TAKEN 1
#define BEGUN 2
#define FINISHED 3 /* with the outcome of the handler */
#define TURNED_DOWN 4 /* finished as well: a failure, nothing was run */
#define STOPPED 5 /* `cancelled` in the journal: removed, or seen to exit */
byte journal[N];
/* in memory */
#define IDLE 0
#define WAITING 1
#define ASKED 2
byte held[N]; /* the lease it holds */
byte work[N];
bool running[N], orphan[N]; /* orphan: its listener died; whether the handler did, nobody has seen */
bool l_up[N];
bool same_boot[N]; /* the relay's connection is of the process that now runs */
bool gone[N];

chan to_l[N] = [ROOM] of { byte };
chan to_r[N] = [ROOM] of { byte };

/* ---- the world ------------------------------------------------------------------------------------------ */
bool late; /* execute_by has passed */
byte relay_crashes, listener_crashes, breaks, cancels;
bool first = true, replayed;

/* ---- what was told, and what is true; nobody in the model acts on it ------------------------------------ */
bool told_queued, told_started, told_cancel_requested;
byte told_end;
#define BEGUN_ONCE (starts > 0)
byte starts;
bool finished_once, seen_to_stop, may_lose_result;

/* For variants that break several promises: the one that matters. */
#ifdef ONE_START_ONLY
#define PROMISE(x) skip
#else
#define PROMISE(x) assert(x)
#endif

byte m, k, n, fresh; /* scratch: zero between steps */

#ifdef WORD_BEFORE_WRITE
bool disk_admitted, disk_started, disk_flag;
byte disk_bound, disk_attempts, disk_ending;
bool dirty;
#define WRITE dirty = true
#else
#define WRITE skip
#endif

/* ---- connections ---------------------------------------------------------------------------------------- */
#define WHOLE(i) (l_up[i] && r_up[i])
#define CLEAR(i) (len(to_l[i]) + len(to_r[i]) < CROWDED)

inline tell_listener(i, msg) { if :: WHOLE(i) -> assert(nfull(to_l[i])); to_l[i]!msg :: else -> skip fi }
inline tell_relay(i, msg) { if :: WHOLE(i) -> assert(nfull(to_r[i])); to_r[i]!msg :: else -> skip fi }
inline empty_queue(c) { do :: len(c) > 0 -> c?m :: else -> break od; m = 0 }

#define IN_L(i, x) (to_l[i]??[eval(INCOMING+x)] || to_l[i]??[eval(GRANT+x)] || to_l[i]??[eval(CANCEL+x)] \
  || to_l[i]??[eval(REFUSED+x)])
#define IN_R(i, x) (to_r[i]??[eval(ACCEPTED+x)] || to_r[i]??[eval(STARTED+x)] || to_r[i]??[eval(COMPLETED+x)] \
  || to_r[i]??[eval(FAILED+x)] || to_r[i]??[eval(INDETERMINATE+x)] || to_r[i]??[eval(CANCELLED+x)] \
  || to_r[i]??[eval(NOT_CANCELLED+x)])
#define IN_USE(x) (lease == x || held[0] == x || held[1] == x || IN_L(0, x) || IN_L(1, x) || IN_R(0, x) || IN_R(1, x))

/* A lease id that never was: the smallest that nobody could confuse. */
inline new_lease() {
  fresh = 1;
  do :: IN_USE(fresh) -> fresh++ :: else -> break od;
  assert(fresh <= LEASES);
  lease = fresh; fresh = 0
}

/* ---- the relay's rules ------------------------------------------------------------------------------------ */

/* One terminal state, and one word. Whoever hears it at all hears it now; later readings are checked against
 * it after each crash. What each word promises about the handler is checked where it is given. */
inline end_call(word) {
  PROMISE(ending == NO_END && told_end == NO_END);
  ending = word; told_end = word; lease = 0; accepted = false; asked = false; WRITE;
  if
  :: word == S_COMPLETED -> PROMISE(BEGUN_ONCE && finished_once)
  :: word == S_FAILED || word == S_DELIVERY_FAILED -> PROMISE(!BEGUN_ONCE)
  :: word == S_CANCELED || word == S_EXPIRED || word == S_REVOKED -> PROMISE(!BEGUN_ONCE || seen_to_stop)
  :: else -> skip
  fi
}

inline count_attempt() {
  attempts++; WRITE;
  if :: attempts >= PARK_AT -> PROMISE(!BEGUN_ONCE) :: else -> skip fi
}

/* The lease is over before the start. With the flag set that is the end, in the same transaction. */
inline release() {
  lease = 0; accepted = false; asked = false;
#ifndef RELEASE_FORGETS_CANCEL
  if :: flag -> end_call(S_CANCELED) :: else -> skip fi
#endif
}

inline connection_lost(i) {
  r_up[i] = false;
  empty_queue(to_r[i]);
  if
  :: lease != 0 && holder == i && !started -> count_attempt(); returnable[i] = same_boot[i]; release()
  :: lease != 0 && holder == i && started ->
    lease = 0; accepted = false; asked = false;
#ifdef START_NOT_BOUND
    started = false
#endif
  :: else -> skip
  fi
}

inline hand_out(i) {
  new_lease(); holder = i; accepted = false;
  tell_listener(i, INCOMING+lease)
}

#ifdef NO_FENCING
#define CURRENT(i, x) (OPEN && (lease != 0 || started))
#else
#define CURRENT(i, x) (OPEN && lease == x && holder == i)
#endif

/* While a cancel is requested or the time is over, nothing is granted. */
#ifdef GRANTED_DESPITE_CANCEL
#define NO_GRANT_NOW (late || rvk)
#else
#define NO_GRANT_NOW (flag || late || rvk)
#endif

inline grant(i, x) {
  asked = false;
#ifdef NO_REGRANT
  if
  :: started -> skip
  :: else ->
    started = true; bound = i; told_started = true; WRITE;
    tell_listener(i, GRANT+x)
  fi
#else
#ifndef NO_FENCING
  PROMISE(!started || bound == i);
#endif
  printf("relay: records started, grants lease %d to %d\n", x, i);
  started = true; bound = i; told_started = true; WRITE;
  tell_listener(i, GRANT+x)
#endif
}

proctype relay_reads(byte i) {
end:
  do
  :: d_step { (r_up[i] && len(to_r[i]) > 0) ->
      to_r[i]?m; k = m - (m % 16); n = m % 16;
      if
      :: !CURRENT(i, n) && (k == ACCEPTED || k == STARTED || k == COMPLETED || k == FAILED || k == INDETERMINATE) ->
#ifndef NO_REFUSAL
        printf("relay: refuses lease %d to %d\n", n, i);
        tell_listener(i, REFUSED+n);
#endif
        skip
      :: !CURRENT(i, n) && (k == CANCELLED || k == NOT_CANCELLED) -> skip /* counted, never answered */
      :: CURRENT(i, n) && k == ACCEPTED -> printf("relay: reads accepted, lease %d of %d\n", n, i); accepted = true
      :: CURRENT(i, n) && k == STARTED ->
        accepted = true;
        if
        :: NO_GRANT_NOW ->
#ifndef ASK_FORGOTTEN
          asked = true; /* until the flag is cleared */
#endif
          skip
        :: else -> grant(i, n)
        fi
      :: CURRENT(i, n) && k == COMPLETED ->
        /* Before the start it would be answered with an error, without effect. */
        if :: started -> printf("relay: completed by %d\n", i); end_call(S_COMPLETED) :: else -> PROMISE(false) fi
      :: CURRENT(i, n) && k == FAILED -> printf("relay: failed by %d\n", i); end_call(S_FAILED)
      :: CURRENT(i, n) && k == INDETERMINATE -> printf("relay: indeterminate, says %d\n", i); end_call(S_INDETERMINATE)
      :: CURRENT(i, n) && k == CANCELLED ->
        printf("relay: reads cancelled, lease %d of %d\n", n, i);
        if
        :: flag -> end_call(S_CANCELED)
        :: !flag && rvk -> end_call(S_REVOKED)
        :: !flag && !rvk && late -> end_call(S_EXPIRED)
        :: else -> skip /* unasked: counted */
        fi
      :: CURRENT(i, n) && k == NOT_CANCELLED ->
        printf("relay: reads not_cancelled, clears the flag\n");
        flag = false; told_cancel_requested = false; WRITE;
        if :: asked && !NO_GRANT_NOW -> grant(i, n) :: else -> skip fi
      fi;
      m = 0; k = 0; n = 0 }
  od
}

proctype relay_acts(byte i) {
end:
  do
  /* Instances are alike: that the first lease goes to number 0 only gives them names. */
  :: d_step { (r_up[i] && CLEAR(i) && OPEN && !started && lease == 0 && !flag && !rvk && !PARKED && (i == 0 || !first)) ->
      first = false; hand_out(i);
      printf("relay: hands out lease %d to %d\n", lease, i) }

#ifndef NO_REBIND
  :: d_step { (r_up[i] && CLEAR(i) && OPEN && started && bound == i && lease == 0) ->
      hand_out(i);
      printf("relay: offers its started call again to %d, lease %d\n", i, lease);
#ifndef NO_CANCEL_BEHIND_REBIND
      if :: flag || late || rvk -> tell_listener(i, CANCEL+lease) :: else -> skip fi;
#endif
      skip }
#endif

  /* 30 s without an acceptance. */
  :: d_step { (lease != 0 && holder == i && !accepted && !started) ->
      printf("relay: lease %d of %d lapses\n", lease, i);
#ifndef LAPSE_NOT_COUNTED
      count_attempt();
#endif
      release() }
#ifdef REBIND_BOUND
  :: d_step { (lease != 0 && holder == i && !accepted && started) ->
      printf("relay: rebind lease %d of %d lapses\n", lease, i);
      lease = 0; asked = false }
#endif

  /* The rebind window: any time is long enough. */
  :: d_step { (OPEN && started && bound == i && !r_up[i]) ->
      printf("relay: %d did not come back in time\n", i);
      may_lose_result = true; end_call(S_INDETERMINATE) }

  /* The relay sees that a connection is gone. */
  :: d_step { (r_up[i] && (!l_up[i] || breaks < BREAKS)) ->
      printf("relay: sees the connection of %d lost\n", i);
      if :: l_up[i] -> breaks++ :: else -> skip fi;
      connection_lost(i) }
  od
}

proctype relay_clock() {
end:
  do
#ifdef EXECUTE_BY
  :: d_step { (admitted && !late) ->
      printf("clock: execute_by passes\n");
      late = true;
      if :: lease != 0 -> tell_listener(holder, CANCEL+lease) :: else -> skip fi;
      if
      :: PARKED -> end_call(S_DELIVERY_FAILED)
#ifdef EXPIRED_AT_ONCE
      :: OPEN && started -> end_call(S_EXPIRED)
#endif
      :: OPEN && !PARKED && !started -> end_call(S_EXPIRED)
      :: else -> skip
      fi }
#endif
#ifdef REVOKE
  :: d_step { (OPEN && !late && !rvk) ->
      printf("relay: authority is lost\n");
      rvk = true; WRITE;
      if :: lease != 0 -> tell_listener(holder, CANCEL+lease) :: else -> skip fi;
      if :: !started -> end_call(S_REVOKED) :: else -> skip fi }
#endif
#if defined(EXECUTE_BY) || defined(REVOKE)
  /* 10 s after the relay's own cancel_call. */
  :: d_step { (OPEN && started && (late || rvk)) ->
      printf("relay: nothing in 10 s\n");
      may_lose_result = true; end_call(S_INDETERMINATE) }
#endif
#ifdef REPLAY
  :: d_step { (PARKED && !replayed) ->
      printf("callee: replays the parked call\n");
      replayed = true; attempts = 0; returnable[0] = false; returnable[1] = false; WRITE }
#endif

#ifdef WORD_BEFORE_WRITE
  :: d_step { dirty -> printf("relay: commits\n"); dirty = false;
      disk_admitted = admitted; disk_started = started; disk_flag = flag; disk_bound = bound;
      disk_attempts = attempts; disk_ending = ending }
#endif

  /* kill -9 of the relay, and its start. What it had written to a listener may still be read there. */
  :: d_step { (relay_crashes < RELAY_CRASHES) ->
      printf("relay: crashes and starts again\n");
      relay_crashes++;
      lease = 0; accepted = false; asked = false; r_up[0] = false; r_up[1] = false;
      empty_queue(to_r[0]); empty_queue(to_r[1]);
#ifdef WORD_BEFORE_WRITE
      dirty = false;
      admitted = disk_admitted; started = disk_started; flag = disk_flag; bound = disk_bound;
      attempts = disk_attempts; ending = disk_ending;
#endif
#ifdef CANCEL_IN_MEMORY
      flag = false;
#endif
      /* Nothing that was told is unsaid. */
      PROMISE(!told_queued || admitted);
      PROMISE(!told_started || started || ending != NO_END);
      PROMISE(!told_cancel_requested || flag || ending != NO_END);
      PROMISE(told_end == NO_END || told_end == ending);
      /* A restart releases too. */
#ifndef RESTART_FORGETS_CANCEL
      if :: OPEN && !started -> release() :: else -> skip fi;
#endif
      skip }
  od
}

/* ---- a listener's rules ------------------------------------------------------------------------------------ */

inline begin(i) {
  printf("listener %d: BEGINS\n", i);
  starts++;
  assert(starts <= 1);
  PROMISE(ending == NO_END || ending == S_INDETERMINATE);
  running[i] = true; work[i] = IDLE;
#ifndef BEGUN_AFTER_FIRST_STEP
  journal[i] = BEGUN
#endif
}

inline report_cancelled(i) { tell_relay(i, CANCELLED+held[i]); held[i] = 0 }

inline answer_from_journal(i) {
  if
  :: running[i] -> tell_relay(i, STARTED+held[i])
  :: else ->
    if
    :: journal[i] == NONE || journal[i] == TAKEN ->
      journal[i] = TAKEN; work[i] = WAITING; tell_relay(i, ACCEPTED+held[i])
    :: journal[i] == BEGUN -> /* its process is gone */
#ifdef PRESUMED_DEAD
      journal[i] = STOPPED; report_cancelled(i)
#else
      tell_relay(i, INDETERMINATE+held[i]); held[i] = 0
#endif
    :: journal[i] == FINISHED -> tell_relay(i, COMPLETED+held[i]); held[i] = 0
    :: journal[i] == TURNED_DOWN -> tell_relay(i, FAILED+held[i]); held[i] = 0
    :: journal[i] == STOPPED -> report_cancelled(i)
    fi
  fi
}

proctype listener(byte i) {
end:
  do
  /* Connect; a connection that the relay still believes in is replaced. */
  :: d_step { (!l_up[i] && !gone[i]) ->
      printf("listener %d: connects\n", i);
      if :: r_up[i] -> connection_lost(i) :: else -> skip fi;
      r_up[i] = true; l_up[i] = true; same_boot[i] = true;
      if :: returnable[i] && attempts > 0 -> attempts--; returnable[i] = false; WRITE :: else -> skip fi }

  /* It sees that its connection is gone: waiting work is dropped, its row stays. */
  :: d_step { (l_up[i] && (!r_up[i] || breaks < BREAKS)) ->
      printf("listener %d: sees its connection lost\n", i);
      if :: r_up[i] -> breaks++ :: else -> skip fi;
      l_up[i] = false; empty_queue(to_l[i]);
#ifndef WAITING_KEPT
      work[i] = IDLE; held[i] = 0;
#endif
      skip }

  :: d_step { (listener_crashes < LISTENER_CRASHES && !gone[i] && (l_up[i] || running[i])) ->
      printf("listener %d: crashes\n", i);
      listener_crashes++;
      l_up[i] = false; empty_queue(to_l[i]); work[i] = IDLE; held[i] = 0;
      orphan[i] = orphan[i] || running[i]; running[i] = false; same_boot[i] = false; returnable[i] = false }
#ifdef GONE
  :: d_step { (!l_up[i] && !same_boot[i] && !gone[i] && listener_crashes > 0) ->
      printf("listener %d: is gone for ever\n", i); gone[i] = true }
#endif
  :: d_step { orphan[i] -> orphan[i] = false } /* it ends by itself; nobody was there to see how */

  :: d_step { (l_up[i] && len(to_l[i]) > 0) ->
      to_l[i]?m; k = m - (m % 16); n = m % 16; m = 0;
      if
      :: k == INCOMING ->
        printf("listener %d: reads the call, lease %d, journal %d\n", i, n, journal[i]);
        held[i] = n; work[i] = IDLE; answer_from_journal(i)
#if defined(NO_FENCING) || defined(GRANT_OF_ANY_LEASE)
      :: k == GRANT && work[i] == ASKED -> begin(i)
#else
#ifdef SECOND_GRANT_BEGINS
      :: k == GRANT && n == held[i] -> begin(i)
#else
      :: k == GRANT && n == held[i] && work[i] == ASKED -> begin(i)
#endif
#endif
      :: k == CANCEL && n == held[i] && work[i] != IDLE ->
        printf("listener %d: removes the waiting work\n", i);
        work[i] = IDLE; journal[i] = STOPPED; report_cancelled(i)
      :: k == CANCEL && n == held[i] && running[i] ->
        printf("listener %d: sees the handler stop\n", i);
        running[i] = false; seen_to_stop = true; journal[i] = STOPPED; report_cancelled(i)
#ifdef REFUSAL_WITHOUT_LEASE
      :: k == REFUSED && held[i] != 0 ->
#else
      :: k == REFUSED && n == held[i] ->
#endif
        printf("listener %d: is refused, drops or stops\n", i);
        work[i] = IDLE; held[i] = 0;
        if
        :: running[i] ->
          /* No begun work is stopped but for a call that has ended. */
          PROMISE(ending != NO_END);
          running[i] = false; seen_to_stop = true; journal[i] = STOPPED
        :: else -> skip
        fi
      :: else -> skip /* under another lease, or nothing to do any more */
      fi;
      k = 0; n = 0 }

  /* The same message, answered in the other way: work that will not stop, or is needed by another call of
   * the same message. */
  :: d_step { (l_up[i] && (running[i] || work[i] != IDLE) &&
      held[i] != 0 && to_l[i]?[eval(CANCEL+held[i])]) ->
      printf("listener %d: does not cancel\n", i);
      to_l[i]?m; m = 0; tell_relay(i, NOT_CANCELLED+held[i]) }

  :: d_step { (work[i] == WAITING) ->
      printf("listener %d: asks to start, lease %d\n", i, held[i]);
      tell_relay(i, STARTED+held[i]);
#ifdef NO_GRANT
      begin(i)
#else
      work[i] = ASKED
#endif
      }

#if defined(EXECUTE_BY) && !defined(NO_OWN_BOUND)
  :: d_step { (late && work[i] != IDLE) ->
      printf("listener %d: drops what is too late to begin\n", i);
      work[i] = IDLE }
#endif

#ifdef TURN_DOWN
  :: d_step { (work[i] != IDLE) ->
      printf("listener %d: turns the call down\n", i);
      work[i] = IDLE; journal[i] = TURNED_DOWN; tell_relay(i, FAILED+held[i]); held[i] = 0 }
#endif

#ifdef BEGUN_AFTER_FIRST_STEP
  :: d_step { (running[i] && journal[i] == TAKEN) -> journal[i] = BEGUN }
#endif

  :: d_step { (running[i] && journal[i] == BEGUN) ->
      printf("listener %d: finishes\n", i);
      running[i] = false; finished_once = true;
#ifndef OUTCOME_NOT_KEPT
      journal[i] = FINISHED;
#endif
      if :: held[i] != 0 -> tell_relay(i, COMPLETED+held[i]) :: else -> skip fi;
      held[i] = 0 }
  od
}

/* ---- the caller --------------------------------------------------------------------------------------------- */

proctype caller() {
end:
  do
  :: d_step { !admitted ->
      printf("caller: submits; relay: admits\n");
      admitted = true; told_queued = true; WRITE }
#ifdef NO_DEDUPE
  :: d_step { (OPEN && started && !replayed) ->
      printf("caller: submits again; relay: admits another call\n");
      replayed = true; started = false; lease = 0; accepted = false; asked = false }
#endif
  :: d_step { (OPEN && !flag && cancels < CANCELS) ->
      printf("caller: cancels\n");
      cancels++;
      if
      :: PARKED || (!started && lease == 0) -> end_call(S_CANCELED)
#ifdef CANCELED_AT_ONCE
      :: else -> end_call(S_CANCELED)
#else
      :: else ->
        flag = true; told_cancel_requested = true; WRITE;
        if :: lease != 0 -> tell_listener(holder, CANCEL+lease) :: else -> skip fi
#endif
      fi }
  od
}

/* ---- at rest -------------------------------------------------------------------------------------------------- */

/* Nothing can move any more: the faults are used up, or did not come. */
proctype at_rest() {
  timeout;
  d_step {
    /* Every call has ended. Before execute_by a parked one, and one that no listener is left for, may wait. */
#ifdef EXECUTE_BY
    PROMISE(ending != NO_END);
#else
    PROMISE(ending != NO_END || PARKED || (!started && gone[0] && gone[1]));
#endif
    /* No lease, slot or handler stays. */
    PROMISE(lease == 0 && !running[0] && !running[1] && work[0] == IDLE && work[1] == IDLE);
    /* No finished result is lost, but by the rules that say so. */
    PROMISE(!finished_once || ending == S_COMPLETED
      || (ending == S_INDETERMINATE && may_lose_result))
  }
}

/* How many faults there are in this run, and whether the caller and the owner do all that they may. */
init {
  atomic {
    if :: true :: RELAY_CRASHES > 0 -> relay_crashes = 1 :: RELAY_CRASHES > 1 -> relay_crashes = 2 fi;
    if :: true :: LISTENER_CRASHES > 0 -> listener_crashes = 1 :: LISTENER_CRASHES > 1 -> listener_crashes = 2 fi;
    if :: true :: BREAKS > 0 -> breaks = 1 :: BREAKS > 1 -> breaks = 2 fi;
    if :: true :: CANCELS > 0 -> cancels = 1 :: CANCELS > 1 -> cancels = 2 fi;
#ifdef REPLAY
    if :: true :: replayed = true fi;
#endif
    run caller(); run relay_clock();
    run relay_reads(0); run relay_reads(1); run relay_acts(0); run relay_acts(1);
    run listener(0); run listener(1);
    run at_rest()
  }
}
