-- Deliveries that were erased with their tenant while the broker may have had jobs of them. Such a job is skipped when it
-- comes; that of another unknown delivery is kept for an operator. A row goes when retention would have taken the delivery.
CREATE TABLE erased_deliveries (
    delivery_id uuid PRIMARY KEY
);
