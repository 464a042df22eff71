// SPDX-License-Identifier: Apache-2.0
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
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
    private transient Map<Long, Long> began;

    HttpFunction(Work work) {
        this.work = work;
    }

    @Override
    public void open(OpenContext context) {
        began = new ConcurrentHashMap<>();
        client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    }

    @Override
    public void asyncInvoke(Long id, ResultFuture<long[]> future) {
        // An attempt after the first has begun when the first did.
        long now = began.computeIfAbsent(id, key -> System.nanoTime());
        if (id == 0 && Proof.current().isNew()) {
            Proof.current().begin(now);
        }
        HttpRequest request = HttpRequest.newBuilder(URI.create(work.address(id))).build();
        client.sendAsync(request, HttpResponse.BodyHandlers.ofString())
                .whenComplete((response, failure) -> finish(id, now, future, response, failure));
    }

    private void finish(
            long id, long first, ResultFuture<long[]> future, HttpResponse<String> response, Throwable failure) {
        if (failure != null) {
            future.completeExceptionally(failure);
        } else if (response.statusCode() == TOO_MANY) {
            future.completeExceptionally(new TooManyRequests());
        } else {
            began.remove(id);
            future.complete(Collections.singleton(new long[] {id, value(response.body()), first}));
        }
    }

    /** Reads `{"value": 17}`. */
    private static long value(String body) {
        return Long.parseLong(body.substring(body.indexOf(':') + 1, body.lastIndexOf('}')).trim());
    }

    @Override
    public void timeout(Long id, ResultFuture<long[]> future) {
        Long first = began.remove(id);
        long since = first == null ? System.nanoTime() : first;
        future.complete(Collections.singleton(new long[] {id, Proof.MISSING, since}));
    }
}
