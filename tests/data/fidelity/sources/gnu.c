/* Tabs of eight columns, steps of two.  */
int
sum (int n)
{
  int all = 0;

  for (int i = 0; i < n; i++)
    {
      if (i > 2)
	{
	  all += i;
	  if (all > 100)
	    break;
	}
    }
  return all;
}
