<?php
// Receives deliveries and verifies X-Service-Signature. PHP's own functions are enough.
//
//     SIGNING_SECRET=whsec_… SEEN=/var/lib/receiver/seen php -S 127.0.0.1:8000 receiver.php
//
// SEEN is a folder that this user alone can write to: who can write there can have deliveries taken for processed.
// It speaks HTTP on the loopback interface: put a server that speaks TLS in front of it.

declare(strict_types=1);

/** Seconds between the signature's time and our clock; more is not permitted. */
const TOLERANCE = 300;

/** Put your own code here. If it throws, the delivery is answered with 500 and comes again. */
function process(string $body): void
{
    error_log('processed ' . strlen($body) . ' bytes');
}

/** Checks the header's value against the body, byte by byte as it came. Returns what is wrong, or null. */
function fault(string $secret, string $signature, string $body, int $now): ?string
{
    $times = $digests = [];
    foreach (explode(',', $signature) as $part) {
        [$name, $value] = explode('=', $part, 2) + [1 => ''];
        if ($name === 't') {
            $times[] = $value;
        } elseif ($name === 'v1') {
            $digests[] = $value;
        }
    }
    if (count($times) !== 1 || preg_match('/^[0-9]{1,18}$/D', $times[0]) !== 1) {
        return 'the signature has no time';
    }
    if (abs($now - (int) $times[0]) > TOLERANCE) {
        return "the signature's time is too far from ours";
    }
    // The key is the whole secret, "whsec_" included. The time is not signed.
    $expected = hash_hmac('sha256', $body, $secret);
    foreach ($digests as $digest) {
        if (hash_equals($expected, $digest)) {
            return null;
        }
    }
    return 'the signature does not match';
}

/**
 * Processes a delivery unless that was done before. Returns whether it did. Each request of PHP begins anew, so a file
 * for each id says what is done, in the folder SEEN. In production: a unique key in your database, written in the
 * transaction of the processing.
 */
function once(string $delivery, string $body): bool
{
    $folder = (string) getenv('SEEN');
    if ($folder === '' || !is_dir($folder) && !@mkdir($folder, 0700) && !is_dir($folder)) {
        throw new RuntimeException("SEEN is missing, or is no folder: '$folder'");
    }
    if (fileowner($folder) !== posix_geteuid() || (fileperms($folder) & 0022) !== 0) {
        throw new RuntimeException("others can write to $folder: chown it to this user, and chmod go-w");
    }
    $file = fopen($folder . '/' . hash('sha256', $delivery), 'c+');
    if ($file === false || !flock($file, LOCK_EX)) {
        throw new RuntimeException("cannot write to $folder");
    }
    if (fread($file, 4) === 'done') {
        return false;
    }
    process($body);
    if (fwrite($file, 'done') !== 4 || !fflush($file)) { // only now: what failed has to come again
        throw new RuntimeException("cannot write to $folder");
    }
    return true;
}

/** Returns the status and the text of the answer. */
function receive(): array
{
    $secret = (string) getenv('SIGNING_SECRET');
    if (preg_match('/^whsec_[0-9a-f]{64}$/D', $secret) !== 1) {
        throw new RuntimeException('SIGNING_SECRET is missing, or is not what was shown: whsec_ and 64 characters');
    }
    $body = (string) file_get_contents('php://input');
    $delivery = $_SERVER['HTTP_X_SERVICE_WEBHOOK_ID'] ?? '';
    $why = fault($secret, $_SERVER['HTTP_X_SERVICE_SIGNATURE'] ?? '', $body, time());
    if ($why === null && $delivery === '') {
        $why = 'X-Service-Webhook-Id is missing';
    }
    if ($why !== null) {
        return [400, $why];
    }
    return once($delivery, $body) ? [200, 'received'] : [200, 'seen before']; // 2xx, or it comes again
}

ini_set('display_errors', '0');
http_response_code(500); // until we know better
try {
    [$status, $text] = receive();
} catch (Throwable $error) {
    error_log((string) $error);
    [$status, $text] = [500, 'processing failed'];
}
http_response_code($status);
echo $text;
