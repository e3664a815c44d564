-- A delivery that is gone must not be created by recording an attempt at it. The statement that records casts to this type
-- whether it knows each delivery, so that it fails by the name of the constraint.
CREATE DOMAIN known_delivery AS boolean CONSTRAINT delivery_is_known CHECK (VALUE);
