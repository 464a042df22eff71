// SPDX-License-Identifier: Apache-2.0
//! Signatures, compared with those that AWS has published: its "Signature Version 4 test suite", in
//! which each request has a name, and the examples of the documentation of S3 ("Signature Calculations
//! for the Authorization Header").

use sparkawait_task::shared::Lender;

use super::*;

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// A date, and in which format and for which service it is meant.
const SUITE: [&str; 3] =
    ["20150830T123600Z", "service", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"];
const S3: [&str; 3] = ["20130524T000000Z", "s3", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"];

/// Signs a request as of `scope`, with its date and the headers `more`.
fn signature(
    [time, service, secret]: [&str; 3],
    [method, target, host]: [&str; 3],
    more: &[(&str, &str)],
    content: &str,
) -> String {
    let scope = Scope { service: service.to_owned(), region: "us-east-1".to_owned() };
    let day = time[..8].to_owned();
    let key = scope.key(secret, &day);
    let (access_key_id, secret_access_key) = ("AKIDEXAMPLE".to_owned(), secret.to_owned());
    let keys = Keys { access_key_id, secret_access_key, session_token: None, expiration: None };
    let ready = Ready { version: 0, day, keys, key, due: None };
    let headers = [("host", host), ("x-amz-date", time)];
    let headers = headers.iter().chain(more);
    let headers = headers.map(|(name, it)| ((*name).to_owned(), canonical_value(it.as_bytes())));
    let headers = headers.collect();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let signed = Signed { method, path, query, headers: &headers, content };
    let authorization = scope.authorization(&ready, time, &signed);
    let start = format!("Credential=AKIDEXAMPLE/{}/us-east-1/{service}/aws4_request, ", ready.day);
    assert!(authorization.starts_with(&format!("AWS4-HMAC-SHA256 {start}")), "{authorization}");
    authorization.rsplit_once("Signature=").unwrap().1.to_owned()
}

#[test]
fn signatures_are_those_of_the_test_suite_of_aws() {
    let host = "example.amazonaws.com";
    let get = |target, more: &[_]| signature(SUITE, ["GET", target, host], more, EMPTY);
    let vanilla = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
    // get-vanilla, get-relative, get-slash-dot-slash, get-slashes
    for target in ["/", "/example/..", "/./", "//"] {
        assert_eq!(get(target, &[]), vanilla, "{target}");
    }
    // get-unreserved
    let plain = "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let expected = "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f";
    assert_eq!(get(plain, &[]), expected);
    // get-utf8
    let expected = "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85";
    assert_eq!(get("/\u{1234}", &[]), expected);
    // get-vanilla-query-order-key-case
    let expected = "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500";
    assert_eq!(get("/?Param2=value2&Param1=value1", &[]), expected);
    // get-header-value-trim
    let more = [("my-header1", " value1"), ("my-header2", " \"a   b   c\"")];
    let expected = "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736";
    assert_eq!(get("/", &more), expected);
    // get-vanilla-with-session-token
    let token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
    let expected = "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8";
    assert_eq!(get("/", &[("x-amz-security-token", token)]), expected);
    // post-x-www-form-urlencoded
    let content = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e";
    let more = [("content-type", "application/x-www-form-urlencoded")];
    let expected = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a";
    assert_eq!(signature(SUITE, ["POST", "/", host], &more, content), expected);
}

#[test]
fn signatures_for_s3_are_those_of_its_documentation() {
    let host = "examplebucket.s3.amazonaws.com";
    let content = ("x-amz-content-sha256", EMPTY);
    let more = [content, ("range", "bytes=0-9")];
    let expected = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    assert_eq!(signature(S3, ["GET", "/test.txt", host], &more, EMPTY), expected);
    let expected = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
    let target = ["GET", "/?max-keys=2&prefix=J", host];
    assert_eq!(signature(S3, target, &[content], EMPTY), expected);
    let hash = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    let more = [
        ("x-amz-content-sha256", hash),
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    let expected = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
    assert_eq!(signature(S3, ["PUT", "/test%24file.text", host], &more, hash), expected);
}

#[test]
fn only_s3_takes_paths_as_they_are() {
    // The slash of a key is not encoded, however it was sent.
    assert_eq!(canonical_path("/a%20b//c%2Fd/", true), "/a%20b//c/d/");
    assert_eq!(canonical_path("/a%20b//c%2Fd/", false), "/a%2520b/c%252Fd/");
    assert_eq!(
        (canonical_path("", true), canonical_path("/a/./..", false)),
        ("/".into(), "/".into())
    );
    assert_eq!(canonical_query("b=%41&a&b=+&"), "a=&b=%2B&b=A");
}

#[test]
fn keys_are_read_from_what_programs_print_and_never_quoted() {
    let text = r#"{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "x"}"#;
    let keys = Keys::read(text).unwrap();
    assert_eq!((keys.access_key_id.as_str(), keys.session_token), ("a", None));
    let error = Keys::read(r#"{"SecretAccessKey": "hidden", "AccessKeyId": 7}"#).err().unwrap();
    assert!(!error.contains("hidden") && error.contains("`AccessKeyId`"));
}

#[tokio::test]
async fn keys_that_end_are_looked_for_anew_before_they_do() {
    let ends: Timestamp = "2026-11-26T19:13:07Z".parse().unwrap();
    let text =
        r#"{"AccessKeyId": "AK", "SecretAccessKey": "SK", "Expiration": "2026-11-26T19:13:07Z"}"#;
    let config = KeysConfig { secret: text.into(), service: "s3".into(), region: "x".into() };
    let lender = Lender::new();
    let secret = lender.lend("keys", &Handle::current(), || Ok::<_, ()>(Secret::new(text, None)));
    let signer = Signer::new(&config, secret.unwrap());
    let ready = signer.ready("20261126").unwrap();
    let before = |seconds: i64| ends - SignedDuration::from_secs(seconds);

    let asked = [3_600, 301, 300, 299, 290, 285, 284, 7, 0, -7]
        .map(|it| signer.ends_soon(&ready, before(it)));

    // Once in fifteen seconds, for a source that still has the old ones.
    assert_eq!(asked, [false, false, true, false, false, true, false, true, false, false]);
    let (day, keys) = (String::new(), Keys::read(text).unwrap());
    let endless = Ready { version: 0, day, keys, key: [0; 32], due: None };
    assert!(!signer.ends_soon(&endless, before(0)));
}
