// SPDX-License-Identifier: Apache-2.0
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** Hands each row to the proof. */
final class ProvingSink implements Sink<long[]> {
    private static final long serialVersionUID = 1;

    @Override
    public SinkWriter<long[]> createWriter(WriterInitContext context) {
        Proof proof = Proof.current();
        return new SinkWriter<>() {
            @Override
            public void write(long[] row, Context context) {
                proof.emitted(row);
            }

            @Override
            public void flush(boolean endOfInput) {}

            @Override
            public void close() {}
        };
    }
}
