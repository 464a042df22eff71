// SPDX-License-Identifier: Apache-2.0
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Collections;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.functions.async.ResultFuture;
import org.apache.flink.streaming.api.functions.async.RichAsyncFunction;

/** Gets the row's key by the asynchronous HTTP client of the JDK. A 429 is left to Flink's retry. */
final class HttpFunction extends RichAsyncFunction<Long, long[]> {
    private static final long serialVersionUID = 1;
    private static final int TOO_MANY = 429;

    /** The server asked to come back later. */
    static final class TooManyRequests extends RuntimeException {
        private static final long serialVersionUID = 1;

        TooManyRequests() {
            super("status 429", null, false, false);
        }
    }

    private final Work work;
    private transient HttpClient client;

    HttpFunction(Work work) {
        this.work = work;
    }

    @Override
    public void open(OpenContext context) {
        client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    }

    @Override
    public void asyncInvoke(Long id, ResultFuture<long[]> future) {
        long now = System.nanoTime();
        if (id == 0 && Proof.current().isNew()) {
            Proof.current().begin(now);
        }
        HttpRequest request = HttpRequest.newBuilder(URI.create(work.url + "/" + id % work.keys)).build();
        client.sendAsync(request, HttpResponse.BodyHandlers.ofString())
                .whenComplete((response, failure) -> finish(id, now, future, response, failure));
    }

    private static void finish(
            long id, long began, ResultFuture<long[]> future, HttpResponse<String> response, Throwable failure) {
        if (failure != null) {
            future.completeExceptionally(failure);
        } else if (response.statusCode() == TOO_MANY) {
            future.completeExceptionally(new TooManyRequests());
        } else {
            future.complete(Collections.singleton(new long[] {id, value(response.body()), began}));
        }
    }

    /** Reads `{"value": 17}`. */
    private static long value(String body) {
        return Long.parseLong(body.substring(body.indexOf(':') + 1, body.lastIndexOf('}')).trim());
    }

    @Override
    public void timeout(Long id, ResultFuture<long[]> future) {
        long began = System.nanoTime() - 1_000_000 * work.timeoutMillis;
        future.complete(Collections.singleton(new long[] {id, Proof.MISSING, began}));
    }
}
