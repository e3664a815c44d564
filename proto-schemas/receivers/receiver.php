<?php
// Receives deliveries and verifies X-Service-Signature. PHP's own functions are enough.
//
//     SIGNING_SECRET=whsec_… php -S 127.0.0.1:8000 receiver.php
//
// It speaks HTTP on the loopback interface: put a proxy that speaks TLS in front of it.

declare(strict_types=1);

/** Seconds between the signature's time and our clock; more is not permitted. */
const TOLERANCE = 300;

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
 * Whether a delivery was seen before. Each request of PHP begins anew, so this keeps a file for each id. In production:
 * a unique key in your database, written in the transaction that processes the delivery.
 */
function seen(string $delivery): bool
{
    $folder = getenv('SEEN') ?: sys_get_temp_dir() . '/seen-deliveries';
    if (!is_dir($folder) && !mkdir($folder, 0700)) {
        throw new RuntimeException('no folder for the ids'); // 500: it comes again
    }
    return @fopen($folder . '/' . hash('sha256', $delivery), 'x') === false;
}

$why = fault(
    (string) getenv('SIGNING_SECRET'),
    $_SERVER['HTTP_X_SERVICE_SIGNATURE'] ?? '',
    (string) file_get_contents('php://input'),
    time(),
);
if ($why !== null) {
    http_response_code(400);
    echo $why;
} elseif (seen($_SERVER['HTTP_X_SERVICE_WEBHOOK_ID'] ?? '')) {
    echo 'seen before'; // 2xx, or it comes again
} else {
    echo 'received'; // only now parse the body and process it
}
