DROP DOMAIN known_delivery;
