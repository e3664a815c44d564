-- What `domain::DeliveryId::derive` makes of a name: the milliseconds of `moment`, then bytes of a SHA-256 of the name, in
-- which the bits of the version (8) and the variant (RFC 9562) are set.
CREATE FUNCTION derived_id(moment uuid, name bytea) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(
    overlay(uuid_send(moment) PLACING substring(sha256(name) FOR 10) FROM 7),
    55, 1), 54, 0), 53, 0), 52, 0), 71, 1), 70, 0), 'hex')::uuid;
