package shop;

import java.util.ArrayList;
import java.util.List;

/**
 * A basket of {@code Item}s; see {@link #total()}.
 */
public class Basket {
    private final List<Item> items = new ArrayList<>();

    @Override
    public String toString() {
        return """
            A basket ("%d" items)
            """.formatted(items.size());
    }

    public long total() {
        return items.stream().filter(item -> !item.isFree()).mapToLong(Item::price).sum();
    }

    public void add(Item item) throws IllegalArgumentException {
        if (item == null) {
            throw new IllegalArgumentException("no item (null)");
        }
        items.add(item);
    }
}
