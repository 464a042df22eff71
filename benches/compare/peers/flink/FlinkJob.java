// SPDX-License-Identifier: Apache-2.0
import java.io.Serializable;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.streaming.api.datastream.AsyncDataStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.async.AsyncFunction;
import org.apache.flink.streaming.api.functions.async.AsyncRetryStrategy;
import org.apache.flink.streaming.util.retryable.AsyncRetryStrategies;

/** Flink's `AsyncWaitOperator` in a local cluster with one slot; prints one line of JSON. */
public final class FlinkJob {
    private static final int MAX_ATTEMPTS = 1_000;
    private static final long RETRY_MILLIS = 100;

    private FlinkJob() {}

    public static void main(String[] arguments) throws Exception {
        Work work = new Work(arguments);
        if (work.warmUpRows > 0) {
            run(work, work.warmUpRows);
        }
        System.out.println(run(work, work.rows).toJson());
        System.exit(0);
    }

    private static Proof run(Work work, long rows) throws Exception {
        Proof proof = Proof.start(work, rows);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
        env.getConfig().enableObjectReuse();
        env.setBufferTimeout(0);
        DataStream<Long> ids = env.fromSequence(0, rows - 1);
        if (work.watermarkEvery > 0) {
            long every = work.watermarkEvery;
            ids = ids.assignTimestampsAndWatermarks(
                    WatermarkStrategy.<Long>forGenerator(context -> new EveryFew(every))
                            .withTimestampAssigner((id, before) -> id));
        }
        SingleOutputStreamOperator<long[]> out;
        if (work.rate > 0) {
            // In a task of its own, as its sleeping would hold up the operator's emission.
            ids = ids.map(new Pace(work.rate)).startNewChain();
            out = asynchronous(work, ids).startNewChain();
        } else {
            out = asynchronous(work, ids);
        }
        out.sinkTo(new ProvingSink());
        env.execute();
        return proof;
    }

    private static SingleOutputStreamOperator<long[]> asynchronous(Work work, DataStream<Long> ids) {
        TimeUnit unit = TimeUnit.MILLISECONDS;
        if (work.url.isEmpty()) {
            AsyncFunction<Long, long[]> function = new SimulatedFunction(work);
            return work.ordered
                    ? AsyncDataStream.orderedWait(ids, function, work.timeoutMillis, unit, work.calls)
                    : AsyncDataStream.unorderedWait(ids, function, work.timeoutMillis, unit, work.calls);
        }
        AsyncRetryStrategy<long[]> retry =
                new AsyncRetryStrategies.FixedDelayRetryStrategyBuilder<long[]>(MAX_ATTEMPTS, RETRY_MILLIS)
                        .ifException((Predicate<Throwable> & Serializable) HttpFunction.TooManyRequests.class::isInstance)
                        .build();
        AsyncFunction<Long, long[]> function = new HttpFunction(work);
        return work.ordered
                ? AsyncDataStream.orderedWaitWithRetry(
                        ids, function, work.timeoutMillis, unit, work.calls, retry)
                : AsyncDataStream.unorderedWaitWithRetry(
                        ids, function, work.timeoutMillis, unit, work.calls, retry);
    }

    /** A watermark after every so many rows, whose times are their ids. */
    private record EveryFew(long every) implements WatermarkGenerator<Long> {
        @Override
        public void onEvent(Long id, long timestamp, WatermarkOutput output) {
            if ((id + 1) % every == 0) {
                output.emitWatermark(new Watermark(timestamp));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }
}
