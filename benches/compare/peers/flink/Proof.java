// SPDX-License-Identifier: Apache-2.0
import java.util.Arrays;

/**
 * What came out, and how late. A row is `{id, result, admitted}`, its result `MISSING` without one.
 *
 * <p>There is one at a time, for all tasks of the process; the sink's task writes it.
 */
final class Proof {
    static final long MISSING = Long.MIN_VALUE;
    private static final int TIMED_ROWS = 200_000;

    private static Proof current;

    private final Work work;
    private final long segment;
    /** A power of two. */
    private final long every;
    private final long[] latencies;
    private final long[] added;
    private int timed;
    private long count;
    private long idSum;
    private long resultSum;
    private long missing;
    private long misplaced;
    private volatile long first;
    private long last;

    private Proof(Work work, long rows) {
        this.work = work;
        segment = work.ordered ? 1 : work.watermarkEvery;
        every = Long.highestOneBit(Math.max(1, rows / TIMED_ROWS));
        latencies = new long[(int) (rows / every) + 1];
        added = new long[latencies.length];
    }

    static Proof start(Work work, long rows) {
        current = new Proof(work, rows);
        return current;
    }

    static Proof current() {
        return current;
    }

    /** Notes the first call; called for row 0, which is the first. */
    void begin(long nanos) {
        first = nanos;
    }

    /** Whether a row is one of those whose latency is taken, so that the others need no clock. */
    boolean isTimed(long id) {
        return (id & every - 1) == 0;
    }

    /** Whether no call has begun, as a retried one may. */
    boolean isNew() {
        return first == 0;
    }

    void emitted(long[] row) {
        long id = row[0];
        if (segment == 1) { // the same, without divisions
            misplaced += id == count ? 0 : 1;
        } else if (segment != 0 && id / segment != count / segment) {
            misplaced++;
        }
        count++;
        idSum += id;
        if (row[1] == MISSING) {
            missing++;
        } else {
            resultSum += row[1];
        }
        if (isTimed(id) && timed < latencies.length) {
            last = System.nanoTime();
            long latency = last - row[2];
            latencies[timed] = latency;
            added[timed++] = latency - 1_000 * work.delayMicros(id);
        }
    }

    String toJson() {
        // The last row may not be a timed one; the job has just ended.
        last = System.nanoTime();
        String addedJson = work.delays == null ? "null" : percentiles(added);
        return String.format(
                "{\"first_ns\": %d, \"last_ns\": %d, \"rows\": %d, \"id_sum\": %d, \"result_sum\": %d,"
                        + " \"missing\": %d, \"misplaced\": %d, \"latency_ms\": %s, \"added_ms\": %s}",
                first, last, count, idSum, resultSum, missing, misplaced, percentiles(latencies), addedJson);
    }

    private String percentiles(long[] nanos) {
        long[] sorted = Arrays.copyOf(nanos, timed);
        Arrays.sort(sorted);
        return String.format(
                java.util.Locale.ROOT,
                "{\"p50\": %.4f, \"p99\": %.4f, \"p99.9\": %.4f}",
                at(sorted, 0.5), at(sorted, 0.99), at(sorted, 0.999));
    }

    private static double at(long[] sorted, double share) {
        return sorted[(int) Math.ceil(share * (sorted.length - 1))] / 1e6;
    }
}
