// SPDX-License-Identifier: Apache-2.0
import java.util.Collections;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.functions.async.ResultFuture;
import org.apache.flink.streaming.api.functions.async.RichAsyncFunction;

/** Gives `3 * id + 1` at once, or after the row's delay by a timer thread. */
final class SimulatedFunction extends RichAsyncFunction<Long, long[]> {
    private static final long serialVersionUID = 1;

    private final Work work;
    private transient ScheduledThreadPoolExecutor timer;
    private transient Proof proof;

    SimulatedFunction(Work work) {
        this.work = work;
    }

    @Override
    public void open(OpenContext context) {
        proof = Proof.current();
        if (work.delays != null) {
            timer = new ScheduledThreadPoolExecutor(1);
        }
    }

    @Override
    public void asyncInvoke(Long id, ResultFuture<long[]> future) {
        long now = proof.isTimed(id) ? System.nanoTime() : 0;
        if (id == 0) {
            proof.begin(now);
        }
        long[] row = {id, 3 * id + 1, now};
        if (work.delays == null) {
            future.complete(Collections.singleton(row));
        } else {
            timer.schedule(
                    () -> future.complete(Collections.singleton(row)),
                    work.delayMicros(id),
                    TimeUnit.MICROSECONDS);
        }
    }

    @Override
    public void close() {
        if (timer != null) {
            timer.shutdownNow();
        }
    }
}
