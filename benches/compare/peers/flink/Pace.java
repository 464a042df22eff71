// SPDX-License-Identifier: Apache-2.0
import org.apache.flink.api.common.functions.MapFunction;

/** Lets rows through at a rate, those of a millisecond together. */
final class Pace implements MapFunction<Long, Long> {
    private static final long serialVersionUID = 1;
    private static final double MILLIS = 1e-3;

    private final double rate;
    private final long burst;
    private transient long started;

    Pace(double rate) {
        this.rate = rate;
        burst = Math.max(1, Math.round(rate * MILLIS));
    }

    @Override
    public Long map(Long id) throws InterruptedException {
        if (id == 0) {
            started = System.nanoTime();
        }
        if (id % burst == 0) {
            long nanos = started + (long) (id / rate * 1e9) - System.nanoTime();
            if (nanos > 0) {
                Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
            }
        }
        return id;
    }
}
